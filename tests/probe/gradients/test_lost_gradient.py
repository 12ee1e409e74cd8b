"""A parameter that has no gradient any more: the probe looks again at once, and reads the norms of the next steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.gradients import latest_norms
from gradtui.protocol.events import GradientsMeasured

X = torch.linspace(-1, 1, 24).view(6, 4)
SELDOM = 1e-9
"""A budget with which no step is sampled that does not have to be, after the first ones."""


class Adapted(nn.Module):
    """A layer with a second one beside it that can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.beside = nn.Linear(4, 3), nn.Linear(4, 3)
        self.leaves_out = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) if self.leaves_out else self.base(x) + self.beside(x)


@pytest.fixture(autouse=True)
def time_passes_for_no_row(monkeypatch: pytest.MonkeyPatch, set_reading_interval: Callable[[int], None]) -> None:
    """As in a run of short steps on a fast machine."""
    monkeypatch.setattr(latest_norms, "_ROWS_NS", 10**15)
    monkeypatch.setattr(latest_norms, "_NORM_NS", 10**15)
    set_reading_interval(4)


def train(is_left_out: Callable[[int], bool], steps: int) -> Watched:
    model = Adapted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched(budget=SELDOM) as seen:
        for step in range(1, steps + 1):
            model.leaves_out = is_left_out(step)
            square_step(model, optimizer, X)
    return seen


def rows_after(seen: Watched, step: int) -> list[GradientsMeasured]:
    return [event for event in seen.all(GradientsMeasured) if event.step > step]


def test_next_readings_have_norms_of_all_parameters() -> None:
    seen = train(lambda step: step > 150, 200)
    rows = [event.norms[2:] for event in rows_after(seen, 150)]
    assert len(rows) >= 8
    assert set(rows) == {(None, None)}
    assert seen.letters() == {"base.weight": "T", "base.bias": "T", "beside.weight": "U", "beside.bias": "U"}


def test_occasionally_unused_layer_keeps_norms_cheap() -> None:
    seen = train(lambda step: step % 8 < 4, 800)
    assert len(rows_after(seen, 500)) <= 1
