"""The curves of a run that has returned to a kept state: what came since then continues at the kept step, in a second colour.

What was given up stays, so that both can be compared. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradtui.run.state.changes.branches import branches
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.run_state import RunState
from gradtui.tui.plots.courses import Part, parts_of, second_role
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve
from gradtui.tui.plots.run_events import parts


def branched(state: RunState, curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves with a curve for each course of the run, at the places where they are drawn."""
    found = branches(state)
    if len(found) == 1:
        return [*curves]
    breaks = model_breaks(state)
    return [
        each
        for curve in curves
        for part in parts_of(curve.steps, found)
        for each in _of_part(state, curve, part, breaks)
    ]


def _of_part(state: RunState, curve: Curve, part: Part, breaks: Sequence[int]) -> Iterator[Curve]:
    of_part = curve.part(part.where)
    for piece in parts(of_part.steps, breaks):
        shown = of_part.part(piece)
        if part.moved:
            shown = replace(shown, steps=[step - part.moved for step in shown.steps])
        if curve.role == REFERENCE_ROLE:
            yield shown
        else:
            name = f"{curve.name} from step {part.to_step:,} on" if part.is_newest else curve.name
            yield replace(shown, name=name, role=second_role(state, curve.role, part))


def in_legend(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves without courses that have the name of a later one: of several given up, the newest is named."""
    return [*{(curve.name, curve.role): curve for curve in curves}.values()]
