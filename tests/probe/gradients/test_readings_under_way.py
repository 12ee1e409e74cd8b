"""Readings that a device has not finished when the models are listed again stay with their parameters."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.late_copies import LateCopy
from helpers.watched import ScriptedCommands, watched
from torch import nn

from gradtui.probe.gradients import grad_histograms, grad_norms, grad_stats, latest_norms, loss_reader
from gradtui.probe.gradients.step_loss import LossReading
from gradtui.protocol.commands import PauseAtBadStep, Resume, TraceGradient, Watch
from gradtui.protocol.events import (
    GradientFiguresMeasured,
    GradientHistogramsMeasured,
    GradientsMeasured,
    ModelsFound,
    NonFiniteFound,
    PauseChanged,
)


@pytest.fixture(autouse=True)
def late_copies(monkeypatch: pytest.MonkeyPatch, as_on_a_device: None) -> None:
    monkeypatch.setattr(LateCopy, "waiting", [])
    for module in (grad_norms, grad_stats, grad_histograms):
        monkeypatch.setattr(module, "HostCopy", LateCopy)


class Growing(nn.Module):
    """`head` is listed first until `grow` puts `body` in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.body: nn.Module = nn.Identity()
        self.head = nn.Linear(2, 1, bias=False)

    def grow(self) -> None:
        self.body = nn.Linear(2, 2, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(batch))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()


def test_norm_that_arrives_late_stays_with_its_parameter() -> None:
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer, torch.tensor([[3.0, 4.0]]))
        model.grow()
        model(torch.ones(1, 2))
        assert len(seen.all(ModelsFound)) == 2
        assert seen.state.tree.norms is None
        LateCopy.arrive()
        seen.probe.report()
        # The gradient of `sum(w x)` is x, whose norm is 5.
        assert seen.norms() == {"body.weight": None, "head.weight": 5.0}
        # What the probe itself knows by place has moved, too.
        assert seen.probe.norms.latest.by_index == {1: 5.0}
        assert seen.state.gradient_norm.last == 5.0


@pytest.mark.parametrize("arrives", ["after the norms", "at the end of the run"])
def test_loss_that_arrives_after_its_norms_is_reported(arrives: str) -> None:
    """It is on another device than they are."""
    model = Growing()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.tensor([[3.0, 4.0]])).sum().backward()
        LateCopy.waiting.clear()
        loss = LateCopy(torch.tensor([2.5]))
        seen.probe.norms.losses.step.values[:] = [loss]
        optimizer.step()
        LateCopy.waiting.remove(loss)
        if arrives == "after the norms":
            LateCopy.arrive()
            seen.probe.norms.poll()
            assert (seen.totals(), seen.losses()) == ([], [])
            seen.probe.report()
            loss.has_arrived = True
            seen.probe.norms.poll()
    assert (seen.totals(), seen.losses()) == ([(1, 5.0)], [(1, 2.5)])


def test_loss_is_reported_without_vanished_parameters() -> None:
    """No model has their parameters any more."""
    model = Growing()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        expected = model(torch.ones(1, 2)).sum().item()
        step(model, optimizer, torch.ones(1, 2))
        model.head = nn.Linear(2, 1, bias=False)
        model(torch.ones(1, 2))
        assert len(seen.all(ModelsFound)) == 2
    assert seen.losses() == [(1, pytest.approx(expected))]
    assert seen.totals() == []
    assert seen.norms() == {"head.weight": None}


def test_old_device_losses_arrive_and_others_count() -> None:
    with watched() as seen:
        norms = seen.probe.norms
        for number in range(1, loss_reader._MAX_LOSSES + 4):
            norms.losses.deliver(number, 0, LossReading((LateCopy(torch.tensor([0.5])),)))
        assert norms.dropped == 3
        LateCopy.arrive()
        norms.poll()
    assert [step for step, _ in seen.losses()] == [*range(1, loss_reader._MAX_LOSSES + 1)]


def test_figures_late_for_emission_are_counted() -> None:
    with watched() as seen:
        for number in range(1, latest_norms._MAX_WAITING + 4):
            seen.probe.norms.latest.loss(number, 0, 0.5, "")
        assert seen.probe.norms.dropped == 3
    assert [step for step, _ in seen.losses()] == [*range(4, latest_norms._MAX_WAITING + 4)]


def test_manual_step_without_second_reading_keeps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here because the device is behind."""
    model = Growing()
    with watched() as seen:
        model(torch.tensor([[3.0, 4.0]])).sum().backward()
        monkeypatch.setattr(grad_norms, "_RING", 1)
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
        model(torch.ones(1, 2))
        assert seen.probe.norms.dropped == 1
        LateCopy.arrive()
        seen.probe.norms.poll()
    assert seen.totals() == [(1, 5.0)]
    assert [step for step, _ in seen.losses()] == [1]
    assert [figures.as_applied for figures in seen.figures()] == [False]


def test_first_nan_is_not_blamed_on_successor() -> None:
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = model.head.weight.register_hook(lambda gradient: gradient * math.nan)
    with watched() as seen:
        step(model, optimizer, torch.ones(1, 2))
        handle.remove()
        model.grow()
        model(torch.ones(1, 2))
        assert not seen.all(NonFiniteFound)
        LateCopy.arrive()
        seen.probe.norms.poll()
        (found,) = seen.all(NonFiniteFound)
        assert (found.step, found.parameter, found.value) == (1, "head.weight", "NaN")


def test_figures_and_histograms_of_another_listing_are_dropped() -> None:
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer, torch.ones(1, 2))
        seen.submit(lambda id_: Watch(id_, ("head.weight",)))
        step(model, optimizer, torch.ones(1, 2))
        model.grow()
        model(torch.ones(1, 2))
        LateCopy.arrive()
        seen.probe.norms.poll()
        assert not seen.all(GradientFiguresMeasured)
        assert not seen.all(GradientHistogramsMeasured)


def test_manual_step_during_relisting_is_reported_once() -> None:
    model = Growing()
    with watched() as seen:
        for batch in ([[3.0, 4.0]], [[6.0, 8.0]]):
            model(torch.tensor(batch)).sum().backward()
            if not isinstance(model.body, nn.Linear):
                model.grow()
            model(torch.ones(1, 2))
            LateCopy.arrive()
            seen.probe.report()
            break
        measured = [event for event in seen.all(GradientsMeasured) if event.step == 1]
        assert [event.total for event in measured] == [5.0]
        assert seen.norms() == {"body.weight": None, "head.weight": 5.0}


def test_measurements_carry_number_of_their_listing() -> None:
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        step(model, optimizer, torch.ones(1, 2))
        LateCopy.arrive()
        seen.submit(lambda id_: TraceGradient(id_, "head.weight"))
        step(model, optimizer, torch.ones(1, 2))
        LateCopy.arrive()
        model.grow()
        optimizer.add_param_group({"params": model.body.parameters()})
        step(model, optimizer, torch.ones(1, 2))
        LateCopy.arrive()
        step(model, optimizer, torch.ones(1, 2))
        LateCopy.arrive()
    now = None
    numbered = set()
    for event in seen.events:
        if isinstance(event, ModelsFound):
            assert event.listing is not None
            assert now is None or event.listing > now
            now = event.listing
        elif event.listing is not None:
            assert event.listing == now
            numbered.add(type(event).__name__)
    assert numbered >= {
        "GradientFiguresMeasured",
        "GradientFlowMeasured",
        "GradientPathFound",
        "GradientsMeasured",
        "ParametersClassified",
        "SavedBytesMeasured",
    }


@pytest.mark.parametrize("breaks", ["gradient", "weights"])
def test_pause_at_nan_waits_for_readings(breaks: str) -> None:
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(PauseAtBadStep)
        for number in range(1, 6):
            if number == 3 and breaks == "gradient":
                model.head.weight.register_hook(lambda gradient: gradient * math.nan)
            if number == 3 and breaks == "weights":
                optimizer.param_groups[0]["lr"] = math.inf
            step(model, optimizer, torch.ones(1, 2))
    # Before the third step, which would apply the gradient, or after it.
    at = 2 if breaks == "gradient" else 3
    assert [(change.paused, change.step) for change in seen.all(PauseChanged)] == [(True, at), (False, at)]
    found = seen.all(NonFiniteFound)[0]
    assert (found.step, found.holds) == (3, True)
