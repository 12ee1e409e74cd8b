"""What came of a step with NaN: the weights stayed finite, or which of them it was written to."""

from __future__ import annotations

import math

import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.protocol.events import NonFiniteFound, NonFiniteOutcome, NonFiniteSettled

BAD = 2
X = torch.linspace(-1, 1, 24).view(6, 4)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


def loss_of(model: nn.Module, step: int) -> Tensor:
    loss: Tensor = model(X).square().mean()
    return loss * math.nan if step == BAD else loss


def only_outcome(seen: Watched) -> NonFiniteOutcome:
    (found,), (settled,) = seen.all(NonFiniteFound), seen.all(NonFiniteSettled)
    assert settled.number == found.number
    assert seen.state.bad_step is not None
    assert seen.state.bad_step.outcome == settled.outcome
    return settled.outcome


def test_an_optimizer_that_applies_it() -> None:
    with watched() as seen:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    assert only_outcome(seen) == NonFiniteOutcome(3, "", False, "2.bias", 3)


def test_a_scaler_that_skips_the_step() -> None:
    with watched() as seen:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert only_outcome(seen) == NonFiniteOutcome(3, "scaler", True)


def test_a_script_that_leaves_the_gradients_out() -> None:
    with watched() as seen:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            if loss.isfinite():
                optimizer.step()
    assert only_outcome(seen) == NonFiniteOutcome(3, "script", True)


def test_a_loss_whose_gradients_are_finite() -> None:
    """That of a mean over no target: torch gives NaN, and a gradient of zeros."""
    with watched() as seen:
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            target = torch.full((6,), -100 if step == BAD else 1)
            nn.functional.cross_entropy(model(X), target).backward()
            optimizer.step()
    assert only_outcome(seen) == NonFiniteOutcome(3, "", True)
    assert all(p.isfinite().all() for p in model.parameters())
