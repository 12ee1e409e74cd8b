"""The courses of a run that has returned to kept states: each begins where the kept step stands. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.run.state.run_state import RunState


@dataclass(frozen=True)
class Branch:
    """The steps from one return to the next."""

    after: int
    """It begins after this step."""
    to_step: int
    """The step to which the run returned then; 0 for the first course, which began with the run."""
    moved: int
    """Curves draw a step of it this many steps further left, so that it continues at the kept step."""


def branches(state: RunState) -> tuple[Branch, ...]:
    """Return the courses of the run, the first one first. There is only that one as long as the run has not returned."""
    found = [Branch(0, 0, 0)]
    returned: dict[int, float] = {}
    for each in state.kept.returns:
        made, kept = each.made, each.kept
        if made.step < found[-1].after:
            continue
        # A state that was kept at the boundary of a return, and after it, belongs to the later course.
        is_later = kept is not None and kept.at > returned.get(made.to_step, math.inf)
        place = made.to_step - _of(found, made.to_step + is_later).moved
        returned[made.step] = made.at
        branch = Branch(made.step, made.to_step, made.step - place)
        # Without a step in between, the later of two returns counts.
        if made.step == found[-1].after and len(found) > 1:
            found.pop()
        found.append(branch)
    return tuple(found)


def place_of(step: int, found: Sequence[Branch]) -> int:
    """Return where curves draw a step."""
    return step - _of(found, step).moved


def _of(found: Sequence[Branch], step: int) -> Branch:
    """Return the course of a step: the state after its last step belongs to it."""
    index = bisect_right([each.after for each in found], step - 1) - 1
    return found[max(0, index)]
