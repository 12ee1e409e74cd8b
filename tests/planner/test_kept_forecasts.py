"""What was forecast of a change stays with it, and is compared with what a real run measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from helpers.recorded_steps import BATCH, Blocks
from helpers.summaries import summarised
from helpers.watched import Watched, watched
from torch import nn

from gradtui.planner import Forecaster
from gradtui.protocol.commands import Command, SetCheckpointing, SetTrainable, TraceStep, Undo
from gradtui.protocol.forecasts import Change
from gradtui.run.reducer import apply
from gradtui.run.state.changes.changes import changes, folded
from gradtui.run.state.forecasts.forecast import forecast_change, question
from gradtui.run.state.forecasts.forecast_score import Compared, compared
from gradtui.run.text.effects import change_results, change_words

Makes = tuple[Change | None, Callable[[int], Command]] | tuple[Change | None, list[Callable[[int], Command]]]
WEIGHT, BIAS = 8 * 8 * 4, 8 * 4
"""Bytes of the parameters of a layer of `Blocks`."""


def train(at: Mapping[int, Makes], model: nn.Module, steps: int = 20) -> Watched:
    """Train; before a step, forecast a change if there is one, and send a command or several."""
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    with watched() as run:
        for step in run.steps(steps, {2: lambda number: TraceStep(number)}):
            if step in at:
                change, make = at[step]
                asked = question(run.state, forecast_change(run.state, change)) if change is not None else None
                if asked is not None:
                    apply(run.state, Forecaster().answer(asked))
                for each in make if isinstance(make, list) else [make]:
                    run.commands.submit(each)
            optimizer.zero_grad()
            model(BATCH).sum().backward()
            optimizer.step()
    return run


def compared_forecasts(run: Watched) -> list[Compared]:
    return list(compared(run.state))


def measured_as_forecast(entry: Compared) -> bool:
    names = ("activations", "gradients")
    return all(entry.measured[name] == getattr(entry.forecast, name) for name in names)


def module_of(model: nn.Module, path: str) -> int:
    return [name for name, _ in model.named_modules()].index(path)


def test_undo_has_forecast_of_change_that_it_undoes() -> None:
    done, undone = compared_forecasts(
        train({5: (Change((0, 1)), lambda number: SetTrainable(number, "blocks.0", False)), 12: (None, Undo)}, Blocks())
    )
    assert undone.forecast == done.forecast.undone()
    assert undone.forecast.gradients == WEIGHT + BIAS
    assert measured_as_forecast(done)
    assert measured_as_forecast(undone)


def test_a_forecast_of_the_undo_itself_comes_first() -> None:
    back = Change((), (0, 1))
    changes = {5: (Change((0, 1)), lambda number: SetTrainable(number, "blocks.0", False)), 12: (back, Undo)}
    done, undone = compared_forecasts(train(changes, Blocks()))
    assert undone.forecast.optimizer_state == 0, "the freeze has kept it"
    assert undone.forecast.activations == -(done.forecast.activations or 0) > 0


def test_a_module_that_is_checkpointed_and_kept_again() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Blocks(), nn.Linear(8, 2))
    block = module_of(model, "1")
    on = (Change(checkpoints=frozenset((block,))), lambda number: SetCheckpointing(number, "1", True))
    off = (Change(keeps=frozenset((block,))), lambda number: SetCheckpointing(number, "1", False))
    first, second = compared_forecasts(train({5: on, 12: off}, model))
    assert (first.forecast.gradients, second.forecast.gradients) == (0, 0)
    assert (first.forecast.activations or 0) < 0
    assert measured_as_forecast(first)
    assert measured_as_forecast(second)
    by_undo = compared_forecasts(train({5: on, 12: (None, Undo)}, model))[1]
    assert by_undo.forecast.activations == second.forecast.activations
    assert measured_as_forecast(by_undo)


def test_dropped_state_is_in_forecast_of_total() -> None:
    (entry,) = compared_forecasts(
        train({5: (Change((0, 1)), lambda number: SetTrainable(number, "blocks.0", False, state="drop"))}, Blocks())
    )
    # Adam keeps two tensors of the size of each parameter, and a step counter of 4 bytes.
    state = 2 * (WEIGHT + BIAS) + 2 * 4
    assert entry.forecast.optimizer_state == -state
    assert entry.forecast.total == -state - WEIGHT - BIAS


def test_an_unfreeze_forecasts_the_optimizer_state_that_appears() -> None:
    model = Blocks()
    model.blocks[0].requires_grad_(False)
    (entry,) = compared_forecasts(
        train({5: (Change((), (0, 1)), lambda number: SetTrainable(number, "blocks.0", True))}, model)
    )
    assert entry.forecast.optimizer_state == 2 * (WEIGHT + BIAS) + 2 * 4
    assert measured_as_forecast(entry)


def plan_of_two(model: nn.Module) -> Makes:
    """Freeze the first block and checkpoint the second one, as one plan."""
    change = Change((0, 1), checkpoints=frozenset((module_of(model, "1"),)))
    return change, [
        lambda number: SetTrainable(number, "0", False),
        lambda number: SetCheckpointing(number, "1", True),
    ]


def test_changes_of_plan_share_forecast_and_measurement() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Blocks(), nn.Linear(8, 2))
    run = train({5: plan_of_two(model)}, model)
    (entry,) = compared_forecasts(run)
    assert entry.forecast.others == 1
    assert measured_as_forecast(entry)
    assert entry.measured["gradients"] == -(WEIGHT + BIAS)
    (entry_of_both,) = folded(changes(run.state))
    assert change_words(entry_of_both) == "froze 0 and 1 more"
    (words,) = (each for each in change_results(entry_of_both) if each.startswith("activations"))
    assert "(forecast " in words
    assert not any("together" in each for each in change_results(entry_of_both))
    assert len([entry for entry in run.state.log if entry.kind == "receipt"]) == 1, "what is the same is said once"
    summary = summarised(run.state)
    assert [each["other_changes"] for each in summary["forecasts"]] == [1]
    assert summary["forecast_errors"]["gradients"] == {"changes": 1, "error": 0.0}


def test_undo_of_one_change_has_no_plan_forecast() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Blocks(), nn.Linear(8, 2))
    assert len(compared_forecasts(train({5: plan_of_two(model), 12: (None, Undo)}, model))) == 1


def test_changes_forecast_one_by_one_are_no_plan() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Blocks(), nn.Linear(8, 2))
    _, makes = plan_of_two(model)
    (entry,) = compared_forecasts(train({5: (Change((0, 1)), makes)}, model))
    assert (entry.forecast.others, entry.measured["gradients"]) == (0, None)


def test_the_summary_has_the_error_of_the_forecasts() -> None:
    run = train({5: (Change((0, 1)), lambda number: SetTrainable(number, "blocks.0", False))}, Blocks())
    errors = summarised(run.state)["forecast_errors"]
    assert errors["activations"] == errors["gradients"] == {"changes": 1, "error": 0.0}
    assert errors["peak"] is None, "the CPU keeps no peak"
