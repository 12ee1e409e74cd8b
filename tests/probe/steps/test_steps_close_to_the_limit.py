"""Close to the recursion limit a step ends as without a probe: what is called in place of torch's functions takes no room.

The same script runs at every depth below a low limit, with a probe and without: the first depth where it meets the limit is
compared, for each thing that a step does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from watched import Watched, watched

from gradtui import call_depth
from gradtui.probe.memory import memory_profile_schedule
from gradtui.probe.steps import hook_buffer

ROOM = 60
"""Calls below the limit, from a test on: more than any of these steps takes."""


class Deep(nn.Module):
    """Calls itself, each time as a module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor, calls: int) -> Tensor:
        found: Tensor = self.linear(x) if calls == 0 else self(x, calls - 1)
        return found


class Training:
    """Does one kind of step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Deep()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2), 2).sum().backward()
        self.optimizer.step()

    def checkpointed(self, reentrant: bool = False) -> None:
        x = torch.ones(2, requires_grad=True)
        checkpoint(self.model, x, 2, use_reentrant=reentrant).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def reentrant(self) -> None:
        self.checkpointed(reentrant=True)

    def hooked(self) -> None:
        loss = self.model(torch.ones(2), 0).sum()
        loss.register_hook(lambda gradient: below(5, lambda: None))
        loss.backward()
        self.optimizer.step()

    def loaded(self) -> None:
        assert len(list(DataLoader([1, 2]))) == 2  # type: ignore[arg-type]


def below(calls: int, act: Callable[[], None]) -> None:
    act() if calls == 0 else below(calls - 1, act)


def unwatched(_: ExitStack, __: pytest.MonkeyPatch) -> Watched | None:
    return None


def examined(stack: ExitStack, _: pytest.MonkeyPatch) -> Watched | None:
    return stack.enter_context(watched())


def examined_after_a_compilation(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Watched | None:
    # gradtui observes no operations in a process that has compiled something; it samples everything else as usual.
    patched = stack.enter_context(monkeypatch.context())
    patched.setattr(memory_profile_schedule, "something_is_compiled", lambda: True)
    return stack.enter_context(watched())


def marked(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Watched | None:
    monkeypatch.setattr(hook_buffer, "_FLUSH_NS", 10**15)
    seen = stack.enter_context(watched(budget=0.0))
    seen.probe.step_sampler._cadence._warmup = 2
    return seen


def first_failing(mode: Any, kind: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls below it are too many for a step of this kind."""
    usual = sys.getrecursionlimit()
    with ExitStack() as stack:
        mode(stack, monkeypatch)
        training = Training()
        # CPython counts some calls of C functions until it has specialised them.
        for _ in range(8):
            training.step()
            getattr(training, kind)()
        stack.callback(sys.setrecursionlimit, usual)
        sys.setrecursionlimit(limit)
        for calls in range(ROOM):
            try:
                below(calls, getattr(training, kind))
            except RecursionError:
                return calls
    raise AssertionError("nothing fails")


@pytest.mark.parametrize("kind", ["step", "checkpointed", "reentrant", "hooked", "loaded"])
def test_a_step_takes_no_more_room_than_without_a_probe(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = call_depth.of_main_thread().in_use() + ROOM
    plain = first_failing(unwatched, kind, limit, monkeypatch)
    assert 0 < plain < ROOM
    assert first_failing(marked, kind, limit, monkeypatch) == plain
    assert first_failing(examined_after_a_compilation, kind, limit, monkeypatch) == plain
    # Where gradtui observes operations, there is room for the most calls that this takes.
    assert plain <= first_failing(examined, kind, limit, monkeypatch) <= plain + 20
