"""A forecast of a model that the script trains only after another one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.commands.schedule import awaited_selections
from gradtui.probe.runtime import RunStopped
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.schedule import Scheduled

PRETRAINING = 10


class Prompted(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.ctx = encoder.requires_grad_(False), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x + self.ctx)


def train(model: nn.Module, parameters: list[nn.Parameter], steps: int) -> None:
    optimizer = torch.optim.Adam(parameters)
    for _ in range(steps):
        square_step(model, optimizer, torch.randn(8, 4))


def forecast_run(awaited: Sequence[str]) -> Watched:
    """Run the script as `gradtui forecast` does: the third step is recorded, and ends it."""
    schedule = (Scheduled(2, TraceStep(1, operations=True)),)
    with watched(stop_after=3, schedule=schedule, awaited=awaited) as seen, pytest.raises(RunStopped):
        script()
    return seen


def script() -> None:
    encoder = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    train(encoder, list(encoder.parameters()), PRETRAINING)
    model = Prompted(encoder)
    train(model, [model.ctx], 1_000)


@pytest.mark.parametrize(
    ("awaited", "steps"),
    [((), 3), (("0.weight",), 3), (("ctx",), PRETRAINING + 3), (("ctx, encoder.0", "0.weight"), PRETRAINING + 3)],
)
def test_steps_count_from_where_all_is_there(awaited: Sequence[str], steps: int) -> None:
    seen = forecast_run(awaited)
    assert seen.state.step == steps
    assert seen.state.operations is not None
    assert (seen.state.operations.step, seen.state.operations.listing) == (steps, seen.state.tree.version)


def test_the_wait_for_what_never_comes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_selections, "MAX_STEPS", 20)
    seen = forecast_run(["no.such.path"])
    assert 20 <= seen.state.step <= 23
    monkeypatch.setattr(awaited_selections, "MAX_SECONDS", 0.0)
    assert forecast_run(["no.such.path"]).state.step == 3
