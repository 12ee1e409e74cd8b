"""GT223 under the probe: real schedulers against arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.optim import lr_scheduler as lrs

from gradtui.probe.script_calls.scheduled_steps import steps_to_thousandth
from gradtui.protocol.events import ScheduleOver

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
