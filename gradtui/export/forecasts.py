"""What was forecast of each change beside what was measured, as JSON-ready data for the summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gradtui.protocol.codec import to_words
from gradtui.state.forecast_score import CATEGORIES, compared, scores
from gradtui.state.run_state import RunState


def forecasts(state: RunState) -> Iterator[dict[str, Any]]:
    """Yield what was forecast of each intervention, and what was measured: changes in bytes, None where unknown."""
    for each in compared(state):
        yield {
            "step": each.event.step,
            "command": to_words(each.event.command),
            "other_changes": each.forecast.others,
            "predicted": {name: getattr(each.forecast, name) for name in CATEGORIES},
            "measured": {name: each.measured[name] for name in CATEGORIES},
            "exact": each.forecast.is_exact,
        }


def errors(state: RunState) -> dict[str, dict[str, Any] | None]:
    """Return the error of the forecasts by category; None where none could be compared."""
    found = scores(state)
    return {name: asdict(found[name]) if name in found else None for name in CATEGORIES}
