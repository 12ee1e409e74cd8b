"""The parts of the summary about changes, in words: what was forecast of each, and returns to kept states. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradtui.protocol import summary_changes as sc
from gradtui.protocol.codec import to_words
from gradtui.protocol.summary_changes import Forecast, ForecastError, Return
from gradtui.run.state.changes.changes import Change, ChangeStatus
from gradtui.run.state.forecasts.forecast_score import CATEGORIES, compared, scores
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import change_results, change_words, counted_changes, effect_clauses
from gradtui.run.text.freezes import verified_result
from gradtui.run.text.kept_states import return_text
from gradtui.run.text.units import sentence


def changes(state: RunState) -> tuple[sc.Change, ...]:
    """Return the newest changes, with what came of each."""
    return tuple(map(_change, counted_changes(state)))


def _change(change: Change) -> sc.Change:
    # A refusal is its result, and has no other answer.
    answer = sentence(change.text) if change.status in (ChangeStatus.APPLIED, ChangeStatus.UNDONE) else ""
    return sc.Change(change.step, change.status.value, change_words(change), answer, tuple(_results(change)))


def _results(change: Change) -> Iterator[str]:
    """Yield what came of a change, each value with its name."""
    if change.receipt is not None and change.receipt.effect is not None:
        yield from effect_clauses(change.receipt.effect, change.forecast)
        if change.verified is not None:
            yield verified_result(change.verified)
        return
    status = change.status.value
    for result in change_results(change):
        if result != status:
            yield result.removeprefix(f"{status}: ")


def forecasts(state: RunState) -> tuple[Forecast, ...]:
    """Return what was forecast of each intervention, and what was measured."""
    return tuple(
        Forecast(
            step=each.event.step,
            command=to_words(each.event.command),
            other_changes=each.forecast.others,
            predicted={name: getattr(each.forecast, name) for name in CATEGORIES},
            measured={name: each.measured[name] for name in CATEGORIES},
            exact=each.forecast.is_exact,
            predicted_seconds=each.predicted_seconds,
            measured_seconds=each.time.after if each.time is not None else None,
        )
        for each in compared(state)
    )


def forecast_errors(state: RunState) -> Mapping[str, ForecastError | None]:
    """Return the error of the forecasts by category; None where none could be compared."""
    found = scores(state)
    return {
        name: ForecastError(found[name].changes, found[name].error) if name in found else None for name in CATEGORIES
    }


def returns(state: RunState) -> tuple[Return, ...]:
    """Return the newest returns, the oldest of these first."""
    return tuple(
        Return(
            step=each.made.step,
            to_step=each.made.to_step,
            state=each.made.number,
            name=(each.kept.name or None) if each.kept is not None else None,
            text=return_text(each),
            why=each.made.why or None,
            complete=not each.made.differing,
        )
        for each in state.kept.returns
    )
