"""Read the progress bars of tqdm in the last lines of the script's output. Pure; standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gradtui.dataclass import dataclass

_BAR = re.compile(
    r"(?P<name>[^|]*?)\d{1,3}%\|[^|]*\|\s*"
    r"(?P<done>\d{1,15}(?:\.\d{1,3})?)(?P<done_unit>[kMGTP]?)/(?P<total>\d{1,15}(?:\.\d{1,3})?)(?P<total_unit>[kMGTP]?)[^\[]*"
    r"\[(?:(?P<days_over>\d{1,6}) days?, )?(?P<time_over>\d{1,6}(?::\d\d){1,2})?[^<\]]*"
    r"<(?:(?P<days>\d{1,6}) days?, )?(?P<time>\d{1,6}(?::\d\d){1,2}|\?)"
)
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_MAX_BARS = 8
_MAX_CHARACTERS = 1_000
"""Longer lines are no bars of a terminal. A script may print any text, and the search must not take long."""


@dataclass(frozen=True)
class ProgressBar:
    """One unfinished progress bar.

    Attributes:
        name: its description, without the colon.
        total: the number of its iterations.
        seconds_left: the time left as tqdm estimates it.
        seconds: the time from its begin to its end as tqdm estimates it, infinite where that is unknown.
    """

    name: str
    total: float
    seconds_left: float
    seconds: float = math.inf


def progress_bars(lines: Sequence[str]) -> list[ProgressBar]:
    """Return the unfinished bars at the end of the output that tell the time left, the outermost first.

    tqdm writes the bar of an inner loop below that of the outer one.
    """
    found: list[ProgressBar] = []
    for line in reversed(lines[-_MAX_BARS:]):
        match = _BAR.match(line, 0, _MAX_CHARACTERS)
        if match is None:
            if line.strip():
                break
            continue
        done, total = (float(match[key]) * _UNITS[match[f"{key}_unit"]] for key in ("done", "total"))
        if match["time"] == "?" or done >= total:
            continue
        left = _seconds(match["time"], match["days"])
        whole = _seconds(match["time_over"], match["days_over"]) + left if match["time_over"] else math.inf
        found.insert(0, ProgressBar(match["name"].strip().rstrip(":"), total, left, whole))
    return found


def _seconds(time: str, days: str | None) -> int:
    seconds = 0
    for part in time.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds + 86_400 * int(days or 0)
