"""What first seeing a model of many parameters costs, counted: it takes a large part of one step, and no more than one.

Counted are Python functions of ours in the first step, and those that no number of tensors may raise.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from helpers.calls import calls_of
from helpers.watched import watched
from torch import nn

from gradtui.probe.gradients import grad_norms
from gradtui.probe.model.storages import StorageCount
from gradtui.probe.sampling import state_classifier

MAX_CALLS = 38.0
"""For each parameter in the first step, half a module among them. Found: 35.5."""


def first_step(layers: int) -> int:
    """Calls in the first step of a model and an optimizer that are made under the probe."""
    with watched(budget=0.01):
        model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(layers)])
        for layer in model:
            # No gradient vanishes on its way: the norms of tiny ones are computed again, each by itself.
            nn.init.eye_(layer.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return calls_of(step)


def test_first_step_takes_fixed_calls_per_parameter() -> None:
    first_step(10)
    small, large = first_step(100), first_step(300)
    assert (large - small) / 400 <= MAX_CALLS


def test_counting_storages_takes_no_call_for_a_tensor() -> None:
    few, many = ([torch.ones(3) for _ in range(count)] for count in (10, 1_000))
    counts = [calls_of(lambda: StorageCount("cpu").add(tensors)) for tensors in (few, many)]  # noqa: B023
    assert counts[0] == counts[1]
    assert StorageCount("cpu").add(many) == 1_000 * 3 * 4


def test_storages_of_other_tensors_are_counted_all_same() -> None:
    plain, sparse = torch.ones(4), torch.ones(2, 2).to_sparse()
    count = StorageCount("cpu")
    # Two indices of two dimensions and four values of four bytes for each of the four elements.
    assert count.add([plain, plain.view(2, 2), sparse]) == 16 + 4 * 2 * 8 + 4 * 4
    assert count.add([plain]) == 0
    assert StorageCount("cuda").add([plain]) == 0
    assert StorageCount("cpu").add([plain, torch.ones(3, device="meta")]) == 16


def test_no_look_lets_the_collector_run(monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []
    of_examiner, of_meter = state_classifier.StateClassifier.classify, grad_norms._norms
    for owner, name, original in (
        (state_classifier.StateClassifier, "classify", of_examiner),
        (grad_norms, "_norms", of_meter),
    ):

        def noting(*given: object, original: Callable[..., object] = original, **named: object) -> object:
            collects.append(gc.isenabled())
            return original(*given, **named)

        monkeypatch.setattr(owner, name, noting)
    assert gc.isenabled()
    first_step(2)
    assert collects
    assert not any(collects)
    assert gc.isenabled()
