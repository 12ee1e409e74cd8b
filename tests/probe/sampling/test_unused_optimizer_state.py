"""Optimizer state of frozen parameters: reported after 20 steps without a write, and no longer once it is deleted or used."""

from __future__ import annotations

from collections.abc import Callable

import torch
from helpers.watched import watched
from torch import nn

from gradtui.protocol.events import OptimizerStateUnused

BYTES = 2 * 4 * (12 + 3) + 2 * 4  # Adam: two moments of 15 elements, and two steps of one


def found_after(
    change: Callable[[int, nn.Sequential, torch.optim.Optimizer], None], steps: int = 60
) -> list[OptimizerStateUnused]:
    torch.manual_seed(0)
    with watched() as seen:
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(steps):
            change(step, model, optimizer)
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    return seen.all(OptimizerStateUnused)


def test_frozen_after_ten_steps() -> None:
    def freeze(step: int, model: nn.Sequential, _: torch.optim.Optimizer) -> None:
        if step == 10:
            model[0].requires_grad_(False)

    (found,) = found_after(freeze)
    assert (found.parameters, found.tensors, found.bytes) == (("0.weight", "0.bias"), 2, BYTES)
    assert 10 <= found.since_step <= found.step - 20


def test_deleted_state_is_no_longer_reported() -> None:
    def freeze(step: int, model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
        if step == 10:
            model[0].requires_grad_(False)
        if step == 50:
            for parameter in model[0].parameters():
                del optimizer.state[parameter]

    first, last = found_after(freeze, steps=90)
    assert (first.tensors, last.tensors) == (2, 0)


def test_frozen_or_alternating_has_nothing_stale() -> None:
    def frozen(_step: int, model: nn.Sequential, _: torch.optim.Optimizer) -> None:
        model[0].requires_grad_(False)

    def in_turns(step: int, model: nn.Sequential, _: torch.optim.Optimizer) -> None:
        model[0].requires_grad_(step % 3 == 0)

    assert found_after(frozen) == []
    assert found_after(in_turns) == []
