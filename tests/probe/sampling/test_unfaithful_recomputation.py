"""Checkpoints of the script that draw other random numbers, or write to buffers twice; those of gradtui do neither."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.events import CheckpointingChanged, RecomputationDiffers


class Net(nn.Module):
    """A stem, a block that `run` calls, and a head."""

    def __init__(self, block: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.block, self.head, self.run = nn.Linear(4, 4), block, nn.Linear(4, 1), run

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.run(self.block, self.stem(x)))


def train(model: nn.Module, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()


def found(block: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> list[RecomputationDiffers]:
    with watched() as seen:
        train(Net(block, run))
        return seen.all(RecomputationDiffers)


def region(**settings: object) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda block, x: checkpoint(block, x, **settings)


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))


class Noise(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * torch.randn(4))


class Count(nn.Linear):
    """Counts its calls in a buffer, and writes the same to another one each time."""

    calls: Tensor
    same: Tensor

    def __init__(self, *, counts: bool) -> None:
        super().__init__(4, 4)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("same", torch.zeros(1))
        self.counts = counts

    def forward(self, x: Tensor) -> Tensor:
        self.same.fill_(1)
        self.calls += self.counts
        return super().forward(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_random_numbers(reentrant: bool) -> None:
    (event,) = found(dropout(), region(use_reentrant=reentrant, preserve_rng_state=False))
    assert (event.regions, event.random_modules, event.rewritten) == (("block",), ("block.1",), ())
    (event,) = found(Noise(4, 4), region(use_reentrant=reentrant, preserve_rng_state=False))
    assert (event.regions, event.random_modules) == (("block",), ())
    assert found(dropout(), region(use_reentrant=reentrant)) == []


# The outer region runs the inner one without grad mode at first.
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")
@pytest.mark.parametrize("reentrant", [False, True])
def test_random_numbers_within_another_checkpoint(reentrant: bool) -> None:
    def nested(block: nn.Module, x: Tensor) -> Tensor:
        inner = region(use_reentrant=reentrant, preserve_rng_state=False)
        return checkpoint(lambda x: inner(block, x.relu()), x, use_reentrant=reentrant)

    (event,) = found(dropout(), nested)
    assert event.regions == ("block",)


@pytest.mark.parametrize("reentrant", [False, True])
def test_statistics_that_are_updated_twice(reentrant: bool) -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    (event,) = found(block, region(use_reentrant=reentrant))
    assert (event.rewritten, event.norms) == (("block.1",), 1)
    blocks = nn.Sequential(block, nn.Linear(4, 4))
    (event,) = found(blocks, lambda block, x: checkpoint_sequential(block, 2, x, use_reentrant=reentrant))
    assert event.rewritten == ("block.0.1",)


def test_other_buffers() -> None:
    (event,) = found(Count(counts=True), region(use_reentrant=False))
    assert (event.rewritten, event.norms) == (("block",), 0)
    assert found(Count(counts=False), region(use_reentrant=False)) == []


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_region_without_anything_random_or_moving(reentrant: bool) -> None:
    block = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Dropout(0.0), nn.LayerNorm(4))
    assert found(block, region(use_reentrant=reentrant, preserve_rng_state=False)) == []


def test_a_module_that_gradtui_checkpoints() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    with watched() as seen:
        seen.submit(lambda number: SetCheckpointing(number, "block", True))
        train(Net(block, lambda block, x: block(x)), 6)
        assert seen.all(CheckpointingChanged)
        assert seen.all(RecomputationDiffers) == []
