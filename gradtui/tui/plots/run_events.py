"""What the curves of a run share: the vertical lines of its markers, and their parts of one set of models each. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gradtui.state.markers import Marker, MarkerKind, markers
from gradtui.state.run_state import RunState
from gradtui.tui.charts.request import VerticalLine
from gradtui.tui.rendering import MARKERS, printable, width_of

_RANKS = tuple(MarkerKind)


def vertical_lines(
    state: RunState, start: float, ends: tuple[float, float], more: Sequence[Marker] = ()
) -> tuple[VerticalLine, ...]:
    """Return the run's markers and `more` between two steps, in the order in which they are preferred where several fall into
    one column.

    `start` is the first step of the curves: what came before it stands there.
    """
    lines = []
    for marker in sorted([*markers(state), *more], key=lambda mark: _RANKS.index(mark.kind)):
        step, (glyph, role) = max(start, float(marker.step)), MARKERS[marker.kind]
        if ends[0] <= step <= ends[1]:
            words = printable(marker.words)
            lines.append(VerticalLine(step, glyph, role, words if width_of(words) == len(words) else ""))
    return tuple(lines)


def parts(steps: Sequence[float], breaks: Sequence[int]) -> Iterator[slice]:
    """Yield the parts of a curve between breaks: one line through several models would be a trend that none of them had."""
    for start, end in pairwise(sorted({0, *(bisect_right(steps, step) for step in breaks), len(steps)})):
        yield slice(start, end)
