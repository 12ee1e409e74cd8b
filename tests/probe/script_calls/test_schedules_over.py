"""GT217, GT223 and GT224 under the probe: real schedulers against arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import SWALR
from torch.utils.data import DataLoader

from gradtui.probe.script_calls.scheduled_steps import steps_to_thousandth
from gradtui.protocol.events import RateIsFactor, ScheduleMisses, ScheduleOver

Make = Callable[[torch.optim.Optimizer], Any]


def over(make: Make, steps: int, *, each: int = 1) -> list[tuple[str, int]]:
    """Return type and length of the schedulers that are reported, if one steps after each `each` steps."""
    with watched() as seen:
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scheduler = make(optimizer)
        for step in range(steps):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % each == each - 1:
                scheduler.step()
    return [(event.scheduler, event.length) for event in seen.all(ScheduleOver)]


DECAYS: list[Make] = [
    lambda optimizer: lrs.StepLR(optimizer, 3),
    lambda optimizer: lrs.StepLR(optimizer, 4, 0.5),
    lambda optimizer: lrs.ExponentialLR(optimizer, 0.8),
    lambda optimizer: lrs.MultiStepLR(optimizer, [2, 5, 5, 9]),
]


@pytest.mark.parametrize("make", DECAYS)
def test_steps_to_a_thousandth(make: Make) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 1.0)
    scheduler = make(optimizer)
    steps = 0
    while optimizer.param_groups[0]["lr"] > 1.0001e-3:
        optimizer.step()
        scheduler.step()
        steps += 1
    assert steps_to_thousandth(scheduler) == steps


def test_schedules_for_epochs_at_each_step() -> None:
    assert over(DECAYS[0], 30) == [("StepLR", 9)]
    assert over(lambda optimizer: lrs.CosineAnnealingLR(optimizer, 10), 30) == [("CosineAnnealingLR", 10)]


def test_a_loaded_schedule_of_epochs() -> None:
    def loaded(optimizer: torch.optim.Optimizer) -> Any:
        scheduler = DECAYS[0](optimizer)
        scheduler.load_state_dict({"last_epoch": 20})
        return scheduler

    assert over(loaded, 40, each=4) == []


@pytest.mark.parametrize(
    ("make", "steps", "each"),
    [
        (DECAYS[0], 40, 4),
        # Each batch is the whole data.
        (lambda optimizer: lrs.StepLR(optimizer, 50), 200, 1),
        (lambda optimizer: lrs.CosineAnnealingLR(optimizer, 30), 30, 1),
        (lambda optimizer: lrs.CosineAnnealingLR(optimizer, 30), 31, 1),
        (lambda optimizer: lrs.ExponentialLR(optimizer, 0.99), 60, 1),
        (lambda optimizer: lrs.MultiStepLR(optimizer, [5, 10]), 60, 1),
        (lambda optimizer: lrs.StepLR(optimizer, 3, 1.0), 30, 1),
    ],
    ids=[
        "once an epoch",
        "whole batches",
        "to its end",
        "a step more",
        "slowly",
        "two milestones",
        "without an effect",
    ],
)
def test_schedules_that_fit(make: Make, steps: int, each: int) -> None:
    assert over(make, steps, each=each) == []


def test_a_scheduler_of_the_same_name_tells_nothing() -> None:
    other = type("MultiStepLR", (), {})()
    other.gamma, other.milestones = 0.1, [2, 5, 9]
    assert steps_to_thousandth(other) is None


def squared(make: Make, rate: float = 0.01) -> list[tuple[float, float]]:
    """Return the first rate and the present one of schedulers whose factors are rates, over 30 steps."""
    with watched() as seen:
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), rate)
        scheduler = make(optimizer)
        for _ in range(30):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    return [(event.first_rate, event.rate) for event in seen.all(RateIsFactor)]


def test_a_rate_in_place_of_a_factor() -> None:
    assert squared(lambda optimizer: lrs.LambdaLR(optimizer, lambda _: 0.01)) == [(0.01, pytest.approx(1e-4))]
    ((first, rate),) = squared(lambda optimizer: lrs.LambdaLR(optimizer, lambda step: 0.01 * 0.9**step))
    assert first == 0.01
    assert 1e-4 * 0.9**30 <= rate < 1e-4 * 0.9**9


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lrs.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100)),
        lambda optimizer: lrs.LambdaLR(optimizer, lambda step: 0.95**step),
        lambda optimizer: lrs.LambdaLR(optimizer, lambda step: (step + 1) / 1e6),
        lambda optimizer: lrs.MultiplicativeLR(optimizer, lambda _: 0.01),
    ],
    ids=["warmup from the same number", "decay", "warmup from less", "another scheduler"],
)
def test_factors_that_are_no_rates(make: Make) -> None:
    assert squared(make) == []


def unstepped(
    make: Make, epochs: int, step: Callable[[int, Any], None] = lambda _epoch, _made: None
) -> list[tuple[str, int]]:
    """Return type and epochs of the schedulers that are reported to make no step; `step` is called after each epoch."""
    with watched() as seen:
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        made = make(optimizer)
        for epoch in range(epochs):
            for inputs in DataLoader(torch.ones(8, 2), 2):
                net(inputs).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            step(epoch, made)
    return [(event.scheduler, event.epochs) for event in seen.all(ScheduleMisses)]


def test_a_scheduler_that_never_steps() -> None:
    ((name, epochs),) = unstepped(lambda optimizer: lrs.StepLR(optimizer, 2), 8)
    assert name == "StepLR"
    assert 5 <= epochs <= 8


def test_a_schedule_that_begins_late() -> None:
    """The newest event says that nothing is missed any more."""
    found = unstepped(lambda optimizer: lrs.StepLR(optimizer, 2), 12, lambda epoch, made: epoch >= 8 and made.step())
    assert [epochs > 0 for _, epochs in found] == [True, False]


def set_rate(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] *= 0.9


def sequence(optimizer: torch.optim.Optimizer) -> Any:
    parts = [lrs.LinearLR(optimizer), lrs.CosineAnnealingLR(optimizer, 5)]
    return lrs.SequentialLR(optimizer, parts, milestones=[100])


@pytest.mark.parametrize(
    ("make", "epochs", "step"),
    [
        (DECAYS[0], 4, lambda _epoch, _made: None),
        (DECAYS[0], 8, lambda _epoch, made: made.step()),
        (DECAYS[0], 8, lambda epoch, made: epoch % 3 == 2 and made.step()),
        (sequence, 8, lambda _epoch, made: made.step()),
        (lambda optimizer: SWALR(optimizer, 0.05), 8, lambda _epoch, _made: None),
        (lambda optimizer: (lrs.StepLR(optimizer, 2), optimizer), 8, lambda _epoch, made: set_rate(made[1])),
    ],
    ids=[
        "few epochs",
        "each epoch",
        "each third epoch",
        "parts of a sequence",
        "averaging",
        "another hand sets the rate",
    ],
)
def test_schedulers_that_step_or_begin_late(make: Make, epochs: int, step: Callable[[int, Any], None]) -> None:
    assert unstepped(make, epochs, step) == []
