"""What a report says of time: parts of a step, speed, and the modules that take most. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.run_summary import RunSummary
from gradtui.run.text.module_times import module_time_rows, timing_words
from gradtui.run.text.step_times import loop_words, time_rows
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
    rows: tuple[tuple[str, ...], ...]
    """Part, share, time, and the median and 95th percentile of a step."""
    timing: str
    """From which steps the times of modules are, and what timing cost; empty if there are none."""
    modules: tuple[tuple[str, ...], ...]
    """The modules whose own time of a step is longest: path, type, forward, backward, own time, its share of that of all."""


def time_contents(run: RunSummary) -> TimeContents | None:
    """Return where the time of the loop went; None before ten steps."""
    time, speed = run.step_time, run.throughput
    if time is None:
        return None
    return TimeContents(
        sentence(loop_words(time)),
        sentence(time.verdict) if time.verdict else "",
        sentence(speed.in_words) if speed is not None else "",
        tuple(time_rows(time)),
        timing_words(time.modules) if time.modules is not None else "",
        tuple(module_time_rows(run.modules, _MAX_TIMED)),
    )
