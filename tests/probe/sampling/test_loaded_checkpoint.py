"""A checkpoint that is alive after its values were copied into the model, and what else has the shapes of the parameters."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import CountingAllocator, watched
from torch import Tensor, nn

from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.protocol.events import CheckpointAlive

SIDE = 600
WEIGHT_BYTES, BIAS_BYTES = SIDE * SIDE * 4, SIDE * 4
"""Of the one linear module: more than the 1 MiB below which nothing is searched for."""

Weights = dict[str, Tensor]


def loaded(weights: Weights) -> Weights:
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    return dict(torch.load(file))


def found_after(make: Callable[[Weights], Any], unexplained: int = 1 << 30) -> list[CheckpointAlive]:
    """Train for six steps, while what `make` returned is alive; then for four without it."""
    allocator = CountingAllocator()
    allocator.total = unexplained
    with watched(allocator=allocator) as seen:
        model = nn.Linear(SIDE, SIDE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        kept = make(model.state_dict())
        for step in range(10):
            model(torch.ones(1, SIDE)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 5:
                kept = None
        assert kept is None
    return seen.all(CheckpointAlive)


def test_a_checkpoint_is_reported_until_it_is_freed() -> None:
    alive, freed = found_after(loaded)
    assert (alive.tensors, alive.bytes) == (2, WEIGHT_BYTES + BIAS_BYTES)
    assert alive.holder is None
    assert (freed.tensors, freed.bytes) == (0, 0)


def averaged(weights: Weights) -> Weights:
    average = loaded(weights)
    for tensor in average.values():
        tensor.mul_(0.9)
    return average


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(copy.deepcopy, id="a snapshot"),
        pytest.param(averaged, id="a loaded average of weights that is updated"),
        pytest.param(lambda weights: loaded({"bias": weights["bias"]}), id="a small part of the model"),
        pytest.param(lambda weights: loaded({"other": torch.ones(SIDE, SIDE + 1)}), id="other shapes"),
        pytest.param(lambda weights: None, id="nothing"),
        pytest.param(lambda weights: [*map(HostMemory().copy_of, weights.values())], id="gradtui's own kept state"),
    ],
)
def test_other_tensors_are_not_reported(make: Callable[[Weights], Any]) -> None:
    assert found_after(make) == []


def test_explained_bytes_cause_no_search() -> None:
    # Parameters and gradients, and less than another copy of the parameters.
    assert found_after(loaded, unexplained=2 * (WEIGHT_BYTES + BIAS_BYTES) + 1_000) == []
