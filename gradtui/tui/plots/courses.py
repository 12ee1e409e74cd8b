"""The courses of a run that has returned to kept states, as curves show them: the newest one in a second colour. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from gradtui.dataclass import dataclass
from gradtui.run.state.changes.branches import Branch, branches, place_of
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns
from gradtui.run.state.over_steps.markers import Marker
from gradtui.run.state.run_state import RunState
from gradtui.tui.plots.rows import LOSS_ROLE, TOTAL_ROLE

_SECOND = {LOSS_ROLE: "curve-5", TOTAL_ROLE: "curve-6"}


@dataclass(frozen=True)
class Part:
    """The points of a curve in one course of the run."""

    where: slice
    moved: int
    is_newest: bool
    to_step: int
    is_only: bool = False


def second_role(state: RunState, role: str, part: Part) -> str:
    """Return the colour of a part: the newest one has a second colour.

    Where that one may be the colour of another curve, the newest part has the full colour beside faint former parts.
    """
    if part.is_only:
        return role
    if role in _SECOND and not optimizer_turns(state).shown:
        return _SECOND[role] if part.is_newest else role
    return role if part.is_newest else f"{role}-raw"


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
