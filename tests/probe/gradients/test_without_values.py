"""Tensors that have no values: training on the device "meta" is counted, and nothing of its values is known."""

from __future__ import annotations

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch._subclasses import FakeTensorMode

from gradtui.configuration.choices import DEFAULT_SHARE
from gradtui.protocol.step_measurements import StepsMeasured

STEPS, EVERY_STEP = 6, 100.0


@pytest.mark.parametrize("budget", [EVERY_STEP, DEFAULT_SHARE])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("accumulates", [1, 2])
def test_steps_on_meta_are_counted(accumulates: int, clips: bool, budget: float) -> None:
    with watched(budget=budget) as seen, torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(accumulates):
                model(torch.randn(5, 3)).square().mean().backward()
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert not seen.state.problems
    assert seen.counts() == (STEPS, STEPS * accumulates, 0, [STEPS])
    assert seen.all(StepsMeasured) == []


def test_steps_by_hand_on_meta() -> None:
    with watched(budget=EVERY_STEP) as seen, torch.device("meta"):
        model = nn.Linear(3, 1)
        for _ in range(STEPS):
            model(torch.randn(5, 3)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= parameter.grad
            model.zero_grad()
    assert not seen.state.problems
    assert seen.state.step == STEPS


@pytest.mark.parametrize("within", [True, False])
def test_fake_tensors(within: bool) -> None:
    """Also where the mode that has made them is over. Their backward may be that of a compiler: it is not counted."""
    mode = FakeTensorMode()

    def train() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

    with watched(budget=EVERY_STEP) as seen:
        with mode:
            model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
            inputs = torch.randn(5, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if within:
                train()
        if not within:
            train()
    assert not seen.state.problems
    assert (seen.state.step, seen.state.optimizer_steps) == (STEPS, [STEPS])
