"""Graphs so deep that looking at them would end the process when they are freed."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import textwrap

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.autograd import saved_tensors
from gradtui.probe.autograd.saved_owners import SavedOwners
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.torch_private.graph_depth import DEEPEST, is_too_deep
from gradtui.protocol.commands import TraceGradient
from gradtui.protocol.events import GradientPathFound, SavedBytesMeasured

SCRIPT = """
    import sys
    import threading

    import torch
    from torch import nn
    from helpers.watched import watched

    def run(length, factor, stack):
        model = nn.Linear(1, 1)

        def train():
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
            for _ in range(2):
                x = model(torch.ones(1, 1))
                for _ in range(length):
                    x = x * factor
                x.sum().backward()
                optimizer.step()
                del x

        with watched() as seen:
            if stack:
                threading.stack_size(stack)
                thread = threading.Thread(target=train)
                thread.start()
                thread.join()
            else:
                train()
        print(seen.state.step, seen.state.bad_step and seen.state.bad_step.value, flush=True)

    for words in sys.argv[1:]:
        length, factor, stack = words.split()
        run(int(length), float(factor), int(stack))
"""
KIB = 1024


@pytest.mark.parametrize(
    ("limit", "runs"),
    [
        (8192 * KIB, [(100_000, 1.0, 0, None), (100_000, math.nan, 0, "NaN"), (9_000, 1.0, 256 * KIB, None)]),
        (1024 * KIB, [(9_000, 1.0, 0, None), (9_000, math.nan, 0, "NaN")]),
    ],
)
def test_long_chain_of_operations_ends_as_without_us(
    limit: int, runs: list[tuple[int, float, int, str | None]]
) -> None:
    """In a process with so large a stack: the operations of a chain, their factor, and the stack of a thread of its own."""
    _, highest = resource.getrlimit(resource.RLIMIT_STACK)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *(f"{length} {by} {stack}" for length, by, stack, _ in runs)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (limit, highest)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    expected = "".join(f"2 {bad}\n" for *_, bad in runs)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr[-500:]


def chain(length: int) -> Tensor:
    x = torch.ones(1, requires_grad=True) * 1.0
    for _ in range(length - 1):
        x = x * 1.0
    return x


@pytest.mark.parametrize("depth", [1, 7, 50])
def test_the_longest_way_decides(depth: int) -> None:
    long, short = chain(depth), chain(1)
    for last in (long, long + short, short + long, long * long):
        added = last is not long
        assert not is_too_deep([last.grad_fn], depth + added)
        assert is_too_deep([last.grad_fn], depth + added - 1)


def test_a_wide_graph_is_not_deep() -> None:
    parts = [torch.ones(1, requires_grad=True) * 1.0 for _ in range(300)]
    assert not is_too_deep([torch.stack(parts).sum().grad_fn], 3)
    assert not is_too_deep([part.grad_fn for part in parts], 1)


def test_owners_in_deep_graph_are_not_searched() -> None:
    assert list(SavedOwners(ModuleTree(), None).nodes_of([chain(DEEPEST + 5)])) == []
    assert len(list(SavedOwners(ModuleTree(), None).nodes_of([chain(50)]))) == 50


def test_what_is_wide_is_still_looked_at() -> None:
    model = nn.Linear(1, 1)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        x = model(torch.ones(1, 1))
        torch.stack([x * 1.0 for _ in range(DEEPEST + 10)]).sum().backward()
        optimizer.step()
    (saved,) = seen.all(SavedBytesMeasured)
    assert saved.total > 0


def test_deep_graph_is_answered_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_tensors, "deepest", lambda: 5)
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(9)))
    with watched() as seen:
        seen.submit(lambda number: TraceGradient(number, "0.weight"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    (told,) = seen.all(GradientPathFound)
    assert (told.gradient.found, told.gradient.whole, told.gradient.operations) == (False, False, 0)
    assert not seen.all(SavedBytesMeasured)
    # What is frozen could be flow-through or cut; of what trains its gradient tells enough.
    assert set(seen.letters().values()) == {"T"}
