"""The undo of an unfreeze is a freeze: it is verified and reported as one, and the script may train its tensors again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from helpers.toggling import freeze, small, step, unfreeze
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import Command, Undo, VerifyFreeze
from gradtui.protocol.events import FreezeOverridden, FreezeStateChanged, FreezeVerified

At = Mapping[int, Callable[[int], Command]]


def train(
    at: At, meanwhile: Callable[[nn.Module, int], None] | None = None, steps: int = 16
) -> tuple[nn.Module, Watched]:
    """Train a model that froze its middle layer, which is in no optimizer; `meanwhile` runs between two steps."""
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        for number in seen.steps(steps, at):
            step(model, optimizer)
            if meanwhile is not None:
                meanwhile(model, number)
    return model, seen


def verdicts(seen: Watched) -> list[tuple[int, int, int, tuple[str, ...]]]:
    return [(event.step, event.parameters, event.steps, event.moved) for event in seen.all(FreezeVerified)]


@pytest.mark.parametrize("back", ["freeze", "undo"])
def test_undo_is_verified_as_equivalent_freeze_is(back: str) -> None:
    _, seen = train({2: unfreeze("2"), 4: freeze("2") if back == "freeze" else Undo})
    assert verdicts(seen) == [(14, 2, 10, ())]
    assert [entry.kind for entry in seen.state.log if entry.kind in ("verified", "moved")] == ["verified"]


@pytest.mark.parametrize("back", ["freeze", "undo"])
def test_later_movement_is_reported_as_after_freeze(back: str) -> None:
    def write(model: nn.Module, number: int) -> None:
        if number == 7:
            with torch.no_grad():
                model[2].weight.add_(1)

    _, seen = train({2: unfreeze("2"), 4: freeze("2") if back == "freeze" else Undo}, write)
    assert verdicts(seen) == [(14, 2, 10, ("2.weight",))]


def test_it_can_be_verified_on_request() -> None:
    _, seen = train({2: unfreeze("2"), 4: Undo, 8: VerifyFreeze})
    assert seen.answers()[-1].startswith("2 tensors unchanged")


def test_the_script_may_train_them_itself_afterwards() -> None:
    def set_back(model: nn.Module, number: int) -> None:
        if number == 6:
            model[2].requires_grad_(True)

    model, seen = train({2: unfreeze("2"), 4: Undo}, set_back)
    assert model[2].weight.requires_grad
    assert seen.all(FreezeOverridden) == []
    assert verdicts(seen) == []
    assert all(event.frozen == () for event in seen.all(FreezeStateChanged))
