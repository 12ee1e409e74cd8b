"""What the curves of a run share: the vertical lines of its markers, and their parts of one set of models each. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from gradtui.run.state.over_steps.markers import Marker, MarkerKind, markers
from gradtui.run.state.run_state import RunState
from gradtui.tui.charts.request import VerticalLine
from gradtui.tui.rendering import MARKERS, printable, width_of

_RANKS = tuple(MarkerKind)


def marks_over(state: RunState, start: float, more: Sequence[Marker] = (), *, since: int = 0) -> tuple[Marker, ...]:
    """Return the run's markers and `more`, in the order in which they are preferred where several fall into one column.

    `start` is the first step of the curves: what came before it stands there. If former models trained up to the step `since`,
    what came up to it is left out.
    """
    first = ceil(start)
    kept = [mark for mark in (*markers(state), *more) if not since or mark.step > since]
    found = sorted(kept, key=lambda mark: _RANKS.index(mark.kind))
    return tuple(mark if mark.step >= first else replace(mark, step=first) for mark in found)


def lines_of(marks: Sequence[Marker], ends: tuple[float, float]) -> tuple[VerticalLine, ...]:
    """Return the lines of the marks between two steps."""
    lines = []
    for mark in marks:
        if ends[0] <= mark.place <= ends[1]:
            glyph, role = MARKERS[mark.kind]
            words = printable(mark.words)
            label = words if width_of(words) == len(words) else ""
            lines.append(VerticalLine(mark.place, glyph, role, label, mark.kind.value))
    return tuple(lines)


def parts(steps: Sequence[float], breaks: Sequence[int]) -> Iterator[slice]:
    """Yield the parts of a curve between breaks: one line through several models would be a trend that none of them had."""
    for start, end in pairwise(sorted({0, *(bisect_right(steps, step) for step in breaks), len(steps)})):
        yield slice(start, end)
