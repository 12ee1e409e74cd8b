"""The cursor of the plots: where it goes, what it reads of each curve, and which marks it is at. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.run.state.over_steps.markers import Marker
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve

Steps = Sequence[float]


@dataclass(frozen=True)
class Reading:
    """The value of a curve at a position."""

    value: float | None
    at: float | None
    """The position of the value, which may be before the cursor. None for a reference (a threshold), and without a value."""
    index: int = -1
    """The index of the value in its curve; -1 without one."""


def read(curve: Curve, ends: tuple[float, float], at: float | None = None) -> Reading:
    """Return the value of a curve at `at`, or the newest one before it. Without `at`, the newest visible one is read."""
    first = bisect_left(curve.steps, ends[0]) if at is None else 0
    index = bisect_right(curve.steps, ends[1] if at is None else at) - 1
    if curve.role == REFERENCE_ROLE and len(curve.steps):
        return Reading(curve.values[max(first, index)], None, max(first, index))
    if index < first:
        return Reading(None, None)
    return Reading(curve.values[index], curve.steps[index], index)


def next_stop(
    steps: Iterable[Steps], at: float | None, direction: int, least: float, ends: tuple[float, float]
) -> float | None:
    """Return the position of the cursor after a step to the right (1) or the left (-1).

    It is a position at which some curve has a value, at least `least` further if there is one. A cursor that is not there yet
    goes to the newest value in sight, and one that is moved beyond the newest is gone: None.
    """
    known = [each for each in steps if len(each)]
    if not known:
        return None
    if at is None:
        before = [each[index - 1] for each in known if (index := bisect_right(each, ends[1]))]
        return max(before, default=None)
    if direction > 0:
        beyond = [each[index] for each in known if (index := bisect_left(each, at + least)) < len(each)]
        newest = max(each[-1] for each in known)
        return min(beyond, default=newest if newest > at else None)
    behind = [each[index - 1] for each in known if (index := bisect_right(each, at - least))]
    return max(behind, default=min(at, *(each[0] for each in known)))


def next_mark(marks: Sequence[Marker], at: float | None, direction: int) -> int | None:
    """Return the step of the mark after the cursor (1) or before it (-1), else its end of the marks; None without marks.

    Without a cursor it is the newest mark.
    """
    steps = sorted({mark.place for mark in marks})
    if not steps or at is None:
        return steps[-1] if steps else None
    index = bisect_right(steps, at) if direction > 0 else bisect_left(steps, at) - 1
    return steps[min(max(0, index), len(steps) - 1)]


def marks_at(marks: Sequence[Marker], at: float, reach: float) -> tuple[list[Marker], bool]:
    """Return the marks at most `reach` from the cursor, and True; if there are none, those of the nearest step, and False."""
    near = [mark for mark in marks if abs(mark.place - at) <= reach]
    if near or not marks:
        return near, bool(near)
    place = min((mark.place for mark in marks), key=lambda place: (abs(place - at), place))
    return [mark for mark in marks if mark.place == place], False
