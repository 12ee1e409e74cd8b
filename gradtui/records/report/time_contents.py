"""What a report says of time: parts of a step, speed, and the modules that take most. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.records.report.curves import Curve, curve_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.step_shares import step_shares
from gradtui.run.text.module_times import module_time_rows, timing_words
from gradtui.run.text.step_times import loop_words, time_rows, time_verdict
from gradtui.run.text.throughput import mean_words
from gradtui.run.text.units import sentence

_MAX_TIMED = 20
"""Modules in the table."""


@dataclass(frozen=True)
class TimeContents:
    """Where the time of the training loop went."""

    words: str
    """How long it took."""
    verdict: str
    """Empty if nothing stands out."""
    speed: str
    """What the run processed in a second."""
    rates: Curve
    """Steps per second."""
    rows: tuple[tuple[str, ...], ...]
    """Part, share, time, and the median and 95th percentile of a step."""
    timing: str
    """From which steps the times of modules are, and what timing cost; empty if there are none."""
    modules: tuple[tuple[str, ...], ...]
    """The modules whose own time of a step is longest: path, type, forward, backward, own time, its share of that of all."""


def time_contents(state: RunState) -> TimeContents | None:
    """Return where the time of the loop went; None before ten steps."""
    shares, verdict = step_shares(state.step_times), time_verdict(state)
    if shares is None:
        return None
    return TimeContents(
        sentence(loop_words(shares)),
        sentence(verdict) if verdict else "",
        sentence(mean_words(state)),
        curve_of("steps per second", state.throughput.rates),
        tuple(time_rows(shares)),
        timing_words(state),
        tuple(module_time_rows(state, _MAX_TIMED)),
    )
