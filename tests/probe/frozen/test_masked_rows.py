"""Rows of a parameter without a gradient, and whether the optimizer moves them, in real sampled steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import nn

from gradtui.probe.memory import cpu_allocator
from gradtui.protocol.events import RowsMasked

ROWS, KEPT = 12, 2
MASK = torch.zeros(ROWS, 1)
MASK[-KEPT:] = 1


def zero_in_hook(weight: torch.Tensor) -> None:
    weight.register_hook(lambda gradient: gradient * MASK)


def zero_by_data(weight: torch.Tensor) -> None:
    assert weight.grad is not None
    weight.grad.data[:-KEPT] = 0


def trained(
    decay: float,
    *,
    hook: Callable[[torch.Tensor], None] | None = None,
    after_backward: Callable[[torch.Tensor], None] | None = None,
    tokens: int = ROWS,
) -> RowsMasked | None:
    """Train an embedding. Returns the newest event about its rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(ROWS, 4), nn.Linear(4, 1))
    weight = model[0].weight
    assert isinstance(weight, torch.Tensor)
    if hook is not None:
        hook(weight)
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=decay)
    with watched(budget=100.0, allocator=cpu_allocator()) as seen:
        for _ in range(8):
            optimizer.zero_grad()
            # Each step uses most rows, not always the same ones, and the last two.
            used = torch.cat([torch.randint(0, tokens, (20,)), torch.tensor([ROWS - 2, ROWS - 1])])
            model(used).sum().backward()
            if after_backward is not None:
                after_backward(weight)
            optimizer.step()
    events = seen.all(RowsMasked)
    return events[-1] if events else None


@pytest.mark.parametrize(
    ("how", "by_hook"),
    [({"hook": zero_in_hook}, True), ({"after_backward": zero_by_data}, False)],
    ids=["hook", "data"],
)
def test_masked_rows_that_decay(how: dict[str, Callable[[torch.Tensor], None]], by_hook: bool) -> None:
    event = trained(0.1, **how)
    assert event is not None
    assert (event.parameter, event.rows, event.masked) == ("0.weight", ROWS, ROWS - KEPT)
    assert event.by_hook == by_hook
    assert event.is_deliberate
    assert event.moved > 1


def test_masked_rows_without_decay_stay() -> None:
    event = trained(0.0, hook=zero_in_hook)
    assert event is not None
    assert event.moved == 0


def test_rows_unused_by_batch_are_not_masked() -> None:
    assert trained(0.1) is None
