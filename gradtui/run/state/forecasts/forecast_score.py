"""How close the forecasts of changes came to what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from gradtui.dataclass import dataclass
from gradtui.protocol.effects import Effect, TimeChange
from gradtui.protocol.events import CommandApplied
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.run_state import RunState

CATEGORIES = ("activations", "gradients", "peak")
"""What is forecast and measured, by the names in `Prediction` and `StepMemory`."""


@dataclass(frozen=True)
class Compared:
    """A change that was forecast, or several at one step boundary, and what was measured of it."""

    event: CommandApplied
    forecast: Prediction
    measured: Mapping[str, int | None]
    """By category: the measured change in bytes; None where there is no measurement of this change alone."""
    time: TimeChange | None = None
    """The measured change of a step's duration; None also where it may be noise."""

    @property
    def predicted_seconds(self) -> float | None:
        """The forecast duration of a step, given that before the change; None where it was not forecast."""
        ratio = self.forecast.duration_ratio
        if ratio is None or self.forecast.time is None:
            return None
        return ratio * (self.time.before if self.time is not None else self.forecast.time.now)


@dataclass(frozen=True)
class Score:
    """The error of the forecasts of one category."""

    changes: int
    """Number of changes that were both forecast and measured."""
    error: float
    """Sum of the absolute errors, divided by the sum of the measured changes without their signs."""


def compared(state: RunState) -> Iterator[Compared]:
    """Yield the newest changes that were forecast, oldest first; of those that were forecast as one, the last."""
    of_next = [state.forecast_of.get(event.command.id) for event in state.interventions[1:]]
    for event, following in zip_longest(state.interventions, of_next):
        made = state.forecast_of.get(event.command.id)
        if made is not None and not (made.others and made is following):
            receipt = state.receipts.get(event.command.id)
            effect = receipt.effect if receipt is not None else None
            time = effect.time if effect is not None and effect.others == made.others else None
            yield Compared(event, made, _measured(effect, made.others), time)


def scores(state: RunState) -> dict[str, Score]:
    """Return the score of each category in which changes were forecast and measured.

    A category whose forecast errs although nothing changed has no score: no share says how much.
    """
    found = {}
    for name in CATEGORIES:
        pairs = [
            (predicted, measured)
            for each in compared(state)
            if (predicted := getattr(each.forecast, name)) is not None and (measured := each.measured[name]) is not None
        ]
        wrong = sum(abs(predicted - measured) for predicted, measured in pairs)
        whole = sum(abs(measured) for _, measured in pairs)
        if pairs and (whole or not wrong):
            found[name] = Score(len(pairs), wrong / whole if whole else 0.0)
    return found


def _measured(effect: Effect | None, others: int) -> dict[str, int | None]:
    # What other changes at the same boundary did is in the same measurement.
    if effect is None or effect.before is None or effect.after is None or effect.others != others:
        return dict.fromkeys(CATEGORIES)
    pairs = {name: (getattr(effect.before, name), getattr(effect.after, name)) for name in CATEGORIES}
    return {name: None if None in pair else pair[1] - pair[0] for name, pair in pairs.items()}
