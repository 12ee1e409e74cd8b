"""Whose running statistics a freeze holds, and an unfreeze releases, is said before it is made, and listed with the changes."""

from __future__ import annotations

import pytest
import torch
from helpers.toggling import normed, step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly
from gradtui.run.state.changes.changes import changes
from gradtui.run.state.forecasts.forecast import Forecast, forecast, forecast_train_only
from gradtui.run.state.tree.selection import find
from gradtui.run.text.effects import change_results
from gradtui.run.text.forecast import forecast_clauses, statistics_clauses
from gradtui.tui.requests.confirmation import is_large


def said(seen: Watched, command: Command) -> Forecast:
    state = seen.state
    if isinstance(command, TrainOnly):
        return forecast_train_only(state, find(command.selection, state.tree).indices)
    assert isinstance(command, SetTrainable)
    named = find(command.path, state.tree).indices
    return forecast(state, named, command.trainable, restores=command.restore)


@pytest.mark.parametrize(
    "commands",
    [
        [SetTrainable(1, "1", False), SetTrainable(2, "1", True)],
        [SetTrainable(1, "0", False), SetTrainable(2, "0.0", True), SetTrainable(3, "0", True)],
        [SetTrainable(1, "1.weight", False), SetTrainable(2, "1.bias", False)],
        [TrainOnly(1, "2"), TrainOnly(2, "1"), SetTrainable(3, "", True)],
    ],
    ids=["a layer", "a part of it", "the last tensor of it", "all but one"],
)
def test_the_forecast_is_what_happens(commands: list[Command]) -> None:
    model = normed()
    forecasts: list[list[str]] = []
    with watched(budget=1.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(2 + 2 * len(commands)):
            turn, is_due = divmod(number - 2, 2)
            if number >= 2 and not is_due:
                forecasts.append(statistics_clauses(said(seen, commands[turn])))
                seen.submit(lambda _, turn=turn: commands[turn])
            step(model, optimizer)
        texts = seen.answers()
        results = [change_results(change) for change in changes(seen.state)]
    assert len(texts) == len(commands)
    for expected, text, result in zip(forecasts, texts, results):
        assert [words for words in result if "BatchNorm1d" in words] == expected
        assert text.count("statistics") == len(expected)
        for clause in expected:
            count = clause.partition(" BatchNorm1d")[0]
            released = " again" if "no longer" in clause else ""
            one = "collects its" if released else "holds its"
            many = "collect their" if released else "hold their"
            words = f"module {one}" if count == "1" else f"modules {many}"
            assert f"{count} BatchNorm1d {words} statistics{released}" in text


def test_freeze_of_frozen_holds_statistics_after_second_press() -> None:
    model = normed()
    model[1].requires_grad_(False)
    with watched(budget=1.0) as seen:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            step(model, optimizer)
        change = said(seen, SetTrainable(1, "1", False))
    assert forecast_clauses(change) == ["1 BatchNorm1d held in eval mode"]
    assert is_large(seen.state, change)


def test_a_model_without_statistics_says_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    with watched(budget=1.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            step(model, optimizer)
        assert not said(seen, SetTrainable(1, "1", False)).holds
