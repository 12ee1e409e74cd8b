"""A forecast that goes on until the time of a step is known."""

from __future__ import annotations

import pytest
import torch
from helpers.forecasts import asked_of
from helpers.training import square_step
from helpers.watched import UNLIMITED, Watched, watched
from torch import nn

from gradtui.probe.commands.schedule import awaited_times
from gradtui.probe.runtime import RunStopped
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.forecasts import Change
from gradtui.protocol.schedule import Scheduled

MOST = 60
"""Steps that a forecast takes at most: its timed steps, those whose operations are counted, the others, and the last."""


def train(steps: int) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        square_step(model, optimizer, torch.randn(64, 32))


def forecast_run(budget: float = 1e-6) -> Watched:
    schedule = (Scheduled(2, TraceStep(1, operations=True)),)
    with watched(budget=budget, stop_after=3, schedule=schedule, awaits_times=True) as seen, pytest.raises(RunStopped):
        train(1_000)
    return seen


def test_run_ends_with_recorded_step_when_timed() -> None:
    state = forecast_run().state
    assert 20 < state.step < MOST
    assert state.operations is not None
    assert state.operations.step == state.step
    assert asked_of(state, Change((0,))).times is not None


def test_wait_for_times_that_never_come_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_times, "MAX_STEPS", 20)
    # All steps are sampled.
    assert forecast_run(UNLIMITED).state.step == 23
    monkeypatch.setattr(awaited_times, "MAX_SECONDS", 0.0)
    assert forecast_run().state.step == 3


def test_early_ending_script_has_first_recorded_step() -> None:
    schedule = (Scheduled(2, TraceStep(1, operations=True)),)
    with watched(budget=1e-6, stop_after=3, schedule=schedule, awaits_times=True) as seen:
        train(6)
    assert seen.state.operations is not None
    assert (seen.state.step, seen.state.operations.step) == (6, 3)
