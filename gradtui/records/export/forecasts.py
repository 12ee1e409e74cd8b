"""What was forecast of each change beside what was measured, for the summary."""

from __future__ import annotations

from collections.abc import Mapping

from gradtui.protocol.codec import to_words
from gradtui.protocol.summary_changes import Forecast, ForecastError
from gradtui.run.state.forecasts.forecast_score import CATEGORIES, compared, scores
from gradtui.run.state.run_state import RunState


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


def errors(state: RunState) -> Mapping[str, ForecastError | None]:
    """Return the error of the forecasts by category; None where none could be compared."""
    found = scores(state)
    return {
        name: ForecastError(found[name].changes, found[name].error) if name in found else None for name in CATEGORIES
    }
