"""The curves of a run that has returned to a kept state: what came since then continues at the kept step, in a second colour.

What was given up stays, so that both can be compared. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gradtui.run.state.branches import Branch, branches, place_of
from gradtui.run.state.markers import Marker, model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve
from gradtui.tui.plots.rows import LOSS_ROLE, TOTAL_ROLE
from gradtui.tui.plots.run_events import parts

_SECOND = {LOSS_ROLE: "curve-5", TOTAL_ROLE: "curve-6"}


@dataclass(frozen=True)
class Part:
    """The points of a curve in one course of the run."""

    where: slice
    moved: int
    is_newest: bool
    to_step: int
    is_only: bool = False


def second_role(role: str, part: Part) -> str:
    """Return the colour of a part: the newest one has a second colour, or the full one beside faint former parts."""
    if part.is_only:
        return role
    if part.is_newest:
        return _SECOND.get(role, role)
    return role if role in _SECOND else f"{role}-raw"


def newest_role(state: RunState, role: str) -> str:
    """Return the colour of the newest part of a curve."""
    return _SECOND.get(role, role) if state.kept.returns else role


def parts_of(steps: Sequence[float], found: Sequence[Branch]) -> Iterator[Part]:
    """Yield the parts of a curve over steps, those without points too."""
    if len(found) == 1:
        yield Part(slice(0, len(steps)), 0, True, 0, is_only=True)
        return
    ends = [0, *(bisect_right(steps, each.after) for each in found[1:]), len(steps)]
    for branch, (start, end) in zip(found, pairwise(ends)):
        yield Part(slice(start, end), branch.moved, branch is found[-1], branch.to_step)


def branched(state: RunState, curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves with a curve for each course of the run, at the places where they are drawn."""
    found = branches(state)
    if len(found) == 1:
        return [*curves]
    breaks = model_breaks(state)
    return [each for curve in curves for part in parts_of(curve.steps, found) for each in _of_part(curve, part, breaks)]


def _of_part(curve: Curve, part: Part, breaks: Sequence[int]) -> Iterator[Curve]:
    of_part = curve.part(part.where)
    for piece in parts(of_part.steps, breaks):
        shown = of_part.part(piece)
        if part.moved:
            shown = replace(shown, steps=[step - part.moved for step in shown.steps])
        if curve.role == REFERENCE_ROLE:
            yield shown
        else:
            name = f"{curve.name} from step {part.to_step:,} on" if part.is_newest else curve.name
            yield replace(shown, name=name, role=second_role(curve.role, part))


def in_legend(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves without courses that have the name of a later one: of several given up, the newest is named."""
    return [*{(curve.name, curve.role): curve for curve in curves}.values()]


def last_place(state: RunState) -> float:
    """Return the last place of the axis: that of the present step, or of the last one before a return."""
    found = branches(state)
    ends = [after.after - before.moved for before, after in pairwise(found)]
    return float(max([*ends, place_of(state.step, found)]))


def placed(state: RunState, marks: Sequence[Marker]) -> tuple[Marker, ...]:
    """Return the marks with their places."""
    found = branches(state)
    if len(found) == 1:
        return tuple(marks)
    return tuple(replace(mark, moved=mark.step - place_of(mark.step, found)) for mark in marks)
