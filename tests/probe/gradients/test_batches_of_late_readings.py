"""The batch of a loss or a norm that arrives from a device some steps after its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from helpers.examples import combinations
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.gradients import buffered_readings, grad_norms, loss_reader, step_loss
from gradtui.probe.steps import BatchPlace, Epochs, hook_buffer
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol.events import NonFiniteFound, SpikeFound

BEHIND = 12
"""Copies of a device that is two or three steps behind."""
BAD = 157
INPUTS = torch.linspace(-1, 1, 240).view(240, 1)
TARGETS = 2 * INPUTS + 0.01 * torch.sin(100 * INPUTS)
SIZE = 4


class LaggingCopy(HostCopy):
    """A copy to the host that arrives after `BEHIND` others have begun."""

    begun: ClassVar[deque[LaggingCopy]] = deque(maxlen=BEHIND)
    is_waited_for = False

    def __init__(self, values: Tensor) -> None:
        super().__init__(values.clone())
        self.begun.append(self)

    @property
    def is_there(self) -> bool:
        return self.is_waited_for or not any(each is self for each in self.begun)

    def wait(self) -> None:
        self.is_waited_for = True


@pytest.fixture(autouse=True)
def lagging_device(monkeypatch: pytest.MonkeyPatch, as_on_a_device: None) -> None:
    LaggingCopy.begun.clear()
    for module in (grad_norms, step_loss):
        monkeypatch.setattr(module, "HostCopy", LaggingCopy)
    # Its short way is for numbers on the CPU.
    monkeypatch.setattr(buffered_readings, "modes_are_active", lambda: True)
    for module in (loss_reader, buffered_readings):
        monkeypatch.setattr(module, "value_of", lambda loss, scale=None: step_loss.DeviceLoss(loss, scale))


def trained(
    bad: float, *, budget: float, workers: int = 0, accumulates: int = 1, epochs: int = 1, rate: float = 0.1
) -> tuple[Watched, list[int]]:
    """Train with one bad target. Return what was seen, and the places of the batches that had it, counted over all epochs."""
    torch.manual_seed(4)
    targets = TARGETS.clone()
    targets[BAD] = bad
    loader = DataLoader(TensorDataset(INPUTS, targets), batch_size=SIZE, shuffle=True, num_workers=workers)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    places, number = [], 0
    with watched(budget=budget) as seen:
        for _ in range(epochs):
            for inputs, wanted in loader:
                number += 1
                if bad in wanted or (math.isnan(bad) and wanted.isnan().any()):
                    places.append(number)
                ((model(inputs) - wanted).square().mean() / accumulates).backward()
                if number % accumulates == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    return seen, places


@pytest.mark.parametrize(("budget", "workers"), combinations([1e-9, 100.0], [0, 2]))
def test_spike_names_batch_of_its_own_step(budget: float, workers: int) -> None:
    seen, (place,) = trained(1e3, budget=budget, workers=workers)
    spike = seen.all(SpikeFound)[0]
    assert spike.step == place
    (batch,) = spike.batches
    assert (batch.number, batch.count, batch.epoch, batch.before) == (place, 60, 1, 0)
    assert BAD in batch.samples
    assert batch.sample_count == SIZE


@pytest.mark.parametrize("budget", [1e-9, 100.0], ids=["buffered", "each step sampled"])
def test_first_nan_names_batch_of_its_own_step(budget: float) -> None:
    seen, places = trained(math.nan, budget=budget)
    found = seen.all(NonFiniteFound)[0]
    assert found.step == places[0]
    (batch,) = found.batches
    assert batch.number == places[0]
    assert BAD in batch.samples


@pytest.mark.parametrize("budget", [1e-9, 100.0], ids=["buffered", "each step sampled"])
def test_nan_loss_with_finite_gradients_names_batch(budget: float) -> None:
    """The norm of the step may arrive before the loss."""
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=SIZE)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(budget=budget) as seen:
        for number, (inputs, wanted) in enumerate(loader, 1):
            optimizer.zero_grad()
            added = math.nan if number == 40 else 0.0
            ((model(inputs) - wanted).square().mean() + added).backward()
            optimizer.step()
    (found,) = seen.all(NonFiniteFound)
    assert (found.step, found.earliest, found.phase) == (40, 40, None)
    assert [(each.number, each.samples) for each in found.batches] == [(40, (156, 157, 158, 159))]


def test_accumulated_batches_may_all_be_meant() -> None:
    seen, places = trained(1e3, budget=100.0, accumulates=4, epochs=4, rate=0.0)
    spike = seen.all(SpikeFound)[0]
    assert spike.step in {math.ceil(place / 4) for place in places}
    (batch,) = spike.batches
    assert (60 * (batch.epoch - 1) + batch.number, batch.before, batch.samples) == (4 * spike.step, 3, ())


def test_batch_of_epoch_that_is_over_is_named() -> None:
    """Its iterator is gone when the loss arrives."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    targets = TARGETS.clone()
    targets[239] = 1e3
    loader = DataLoader(TensorDataset(INPUTS, targets), batch_size=SIZE)
    with watched(budget=100.0) as seen:
        for _ in range(2):
            for inputs, wanted in loader:
                optimizer.zero_grad()
                (model(inputs) - wanted).square().mean().backward()
                optimizer.step()
    spike = seen.all(SpikeFound)[0]
    assert spike.step == 60
    assert [(each.number, each.epoch, each.samples) for each in spike.batches] == [(60, 1, (236, 237, 238, 239))]


@pytest.mark.parametrize("accumulates", [1, 3])
@pytest.mark.parametrize("flush_ns", [0, 100_000, 3_000_000, 200_000_000])
def test_each_place_is_right_when_events_are_replayed(
    monkeypatch: pytest.MonkeyPatch, flush_ns: int, accumulates: int
) -> None:
    present, found = (0, 0), []
    places = Epochs.places

    def noted(epochs: Epochs, buffered: Sequence[int]) -> tuple[BatchPlace, ...]:
        result = places(epochs, buffered)
        found.append((present, [(each.number, each.before) for each in result]))
        return result

    monkeypatch.setattr(Epochs, "places", noted)
    monkeypatch.setattr(hook_buffer, "_FLUSH_NS", flush_ns)
    monkeypatch.setattr(hook_buffer, "_FLUSH_WITHIN_NS", flush_ns)
    with watched(budget=0.01):
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        backwards = 0
        for _ in range(2):
            for number, (inputs, wanted) in enumerate(DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=SIZE), 1):
                present = number, backwards % accumulates
                (model(inputs) - wanted).square().mean().backward()
                backwards += 1
                if backwards % accumulates == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    assert len(found) == 120
    assert [each for each in found if each[1] != [each[0]]] == []
