"""What a copy of the run would take, before it is made. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState

_BYTES_PER_S = 1e9
"""The speed of a copy before one was made: less than any host's memory has."""


class CopyCost(NamedTuple):
    """The figures of a copy."""

    bytes: int
    seconds: float
    is_of_copy: bool
    """They are those of the copy that was made last."""


def copy_cost(state: RunState) -> CopyCost | None:
    """Return the bytes and seconds of a copy: those of the newest one, else what was measured of the run's memory.

    None while neither is known.
    """
    copies = [each.kept for each in state.kept.states.values()]
    if copies:
        return CopyCost(copies[-1].bytes, copies[-1].seconds, True)
    measured = state.phases[Phase.OPTIMIZER].last or state.phases[Phase.BACKWARD].last
    if measured is None:
        return None
    held = measured.held
    size = held.parameters + held.buffers + held.gradients + held.optimizer_state
    return CopyCost(size, size / _BYTES_PER_S, False)
