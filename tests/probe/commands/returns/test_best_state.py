"""The state at which a metric of validation data was best is kept by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.commands.returns import best_state
from gradtui.protocol import events as ev


def epochs(wandb: Any, values: Sequence[dict[str, float]], budget: float = 0.01) -> tuple[Watched, list[torch.Tensor]]:
    """Train 5 steps, evaluate and log, for each of these values. Return the weights at each evaluation."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    weights = []
    with watched(budget=budget) as seen:
        for logged in values:
            model.train()
            for _ in range(5):
                square_step(model, optimizer, torch.randn(4, 3))
            model.eval()
            with torch.no_grad():
                model(torch.ones(4, 3))
            wandb._log(logged)
            weights.append(model.weight.detach().clone())
        model.train()
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
    return seen, weights


@pytest.fixture
def at_any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_state, "_SHARE", 1e9)


@pytest.mark.usefixtures("at_any_cost")
@pytest.mark.parametrize("budget", [100.0, 0.01], ids=["sampled", "not sampled"])
@pytest.mark.parametrize(
    ("name", "values", "steps"),
    [
        ("val/loss", [0.9, 0.7, 0.8, 0.6], [5, 10, 20]),
        ("val/accuracy", [0.5, 0.4, 0.7], [5, 15]),
        ("val/loss", [0.9, float("nan"), 0.8], [5, 15]),
    ],
)
def test_each_better_value_replaces_the_state(
    wandb: Any, name: str, values: list[float], steps: list[int], budget: float
) -> None:
    seen, _ = epochs(wandb, [{"epoch": 1.0, name: value} for value in values], budget)
    kept = seen.all(ev.StateKept)
    assert [each.step for each in kept] == steps
    assert kept[-1].why == f"best {name} {values[steps[-1] // 5 - 1]:g}"
    # At most one of them is alive, and what was kept is what was evaluated.
    assert [each.number for each in seen.probe.dispatcher.keeping.states] == [kept[-1].number]


@pytest.mark.usefixtures("at_any_cost")
def test_the_state_has_the_weights_that_were_evaluated(wandb: Any) -> None:
    values = [{"val/loss": 0.9}, {"val/loss": 0.5}, {"val/loss": 0.7}]
    seen, weights = epochs(wandb, values)
    (state,) = seen.probe.dispatcher.keeping.states
    copies = [each for tensor in state.copy._tensors for each in tensor._copies]
    assert any(each.shape == weights[1].shape and torch.equal(each, weights[1]) for each in copies)


@pytest.mark.usefixtures("at_any_cost")
@pytest.mark.parametrize("logged", [{"val/score": 0.5}, {"train/loss": 0.5}, {"lr": 0.1}])
def test_metrics_without_known_better_side_keep_nothing(wandb: Any, logged: dict[str, float]) -> None:
    seen, _ = epochs(wandb, [logged, logged])
    assert seen.all(ev.StateKept) == []


@pytest.mark.usefixtures("at_any_cost")
def test_the_newest_value_of_an_evaluation_counts(wandb: Any) -> None:
    class Twice:
        def _log(self, values: dict[str, float]) -> None:
            # The first one is that of a part of the data.
            wandb._log({"val/loss": 0.01})
            wandb._log(values)

    seen, _ = epochs(Twice(), [{"val/loss": 0.9}, {"val/loss": 0.7}])
    assert [each.why for each in seen.all(ev.StateKept)] == ["best val/loss 0.9", "best val/loss 0.7"]


def test_copies_take_share_of_time_at_most(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_state, "_SHARE", 1e-9)
    seen, _ = epochs(wandb, [{"val/loss": 0.9}, {"val/loss": 0.8}])
    assert [each.step for each in seen.all(ev.StateKept)] == [5]


def test_keeping_best_state_leaves_run_same(wandb: Any) -> None:
    _, weights = epochs(wandb, [{"val/loss": 0.9}, {"val/loss": 0.8}, {"val/loss": 0.7}])
    _, others = epochs(wandb, [{}, {}, {}])
    assert all(torch.equal(one, other) for one, other in zip(weights, others))
