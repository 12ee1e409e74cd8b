"""What an optimizer's step takes beyond its state, and how a forecast scales it with what trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.forecasts import asked_of
from helpers.watched import Watched, watched
from torch import nn

from gradtui.planner import Forecaster
from gradtui.planner.forecaster import _scratch
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.forecasts import Change, ForecastAsked

LARGE, SMALL = 400 * 100, 100 * 30


def trained(frozen: bool) -> Watched:
    """Adam on the CPU, which steps one parameter after the other."""
    model = nn.Sequential(nn.Linear(400, 100, bias=False), nn.Linear(100, 30, bias=False))
    model[0].requires_grad_(not frozen)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], 0.01)
    with watched() as run:
        for _ in run.steps(4, {3: lambda number: TraceStep(number)}):
            optimizer.zero_grad()
            model(torch.ones(2, 400)).sum().backward()
            optimizer.step()
        assert run.state.optimizers
    return run


@pytest.fixture(scope="module")
def asked() -> ForecastAsked:
    run = trained(False)
    return asked_of(run.state, Change((0,)))


def test_step_by_parameter_needs_its_largest_one(asked: ForecastAsked) -> None:
    assert asked.peaks is not None
    # The square root of the second moment, and its quotient by the bias correction.
    assert asked.peaks.scratch == 2 * 4 * LARGE
    assert not asked.peaks.steps_at_once
    change = Forecaster()._change(asked)
    assert change is not None
    written = trained(True).all(StepMemoryProfiled)[-1]
    assert asked.peaks.scratch + change.scratch == written.optimizer_scratch == 2 * 4 * SMALL


@pytest.mark.parametrize(
    ("at_once", "scratch", "change"),
    [
        # A tensor of the size of each gradient, of 90 and 10 bytes; then only the second one trains.
        (True, 100, -90),
        # Two of the largest one alone, although the device would do all at once.
        (True, 40, -36),
        (False, 100, -89),
        (True, 0, 0),
    ],
)
def test_step_of_all_needs_all_at_once(asked: ForecastAsked, at_once: bool, scratch: int, change: int) -> None:
    assert asked.peaks is not None
    peaks = replace(asked.peaks, steps_at_once=at_once, scratch=scratch)
    assert _scratch(replace(asked, peaks=peaks), [90, 10], [10]) == change
    assert _scratch(replace(asked, peaks=peaks), [], [10]) == 0
    assert _scratch(replace(asked, peaks=None), [90], [10]) == 0
