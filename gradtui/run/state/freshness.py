"""Whether a value still says what the run does now, or is old: then the screen dims it and names its step. Pure.

Not everything is measured at every step, so that values of different steps stand beside each other on one screen.
"""

from __future__ import annotations

import math

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import norm_steps_of
from gradtui.run.state.tree_state import TreeState

SECONDS = 2.0
"""Seconds of training after which a value is old."""


def oldest_fresh_step(state: RunState) -> int:
    """Return the first step whose values are fresh: those after the newest change, and of the last two seconds of training.

    Seconds are counted as steps at the present rate: they do not pass while the run is paused, nor after its end. The last two
    steps are always recent, however long they took, because a norm may be read one step later.
    """
    after_change = state.changed_after + 1
    steps = math.inf if state.steps_per_second is None else SECONDS * state.steps_per_second
    if not math.isfinite(steps):
        return after_change
    now = _now(state)
    return max(after_change, min(now - 1, math.floor(now - steps) + 1))


def is_stale(state: RunState, step: int | None) -> bool:
    """Return whether a value of a step is old. A value of an unknown step, or of none, is not."""
    return step is not None and step < oldest_fresh_step(state)


def is_memory_stale(state: RunState, measured: MemoryMeasured | None) -> bool:
    """Return whether a reading of the memory is old. That of the time before training is of no step, and stays what it is."""
    return measured is not None and measured.phase is not Phase.LOAD and is_stale(state, measured.step)


def _now(state: RunState) -> int:
    """Return the present step; once the run has ended, the last one of which anything is known."""
    if state.ended is None:
        return state.step
    measured = (*state.loss.steps[-1:], *state.gradient_norm.steps[-1:], state.tree.norms_step or 0)
    return min(state.step, max(measured)) or state.step


def stale_norm_step(state: RunState, parameters: range) -> int | None:
    """Return the step of the oldest gradient norm of these parameters if it is old; None otherwise. Linear in their number."""
    steps = norm_steps_of(state.tree, parameters)
    return steps[0] if steps is not None and is_stale(state, steps[0]) else None


def stale_ratio_steps(state: RunState, parameters: range) -> tuple[int, int] | None:
    """Return the first and the last step of the update ratios of these parameters if the first is old; None otherwise.

    Linear in their number.
    """
    steps = ratio_steps(state.tree, parameters)
    return steps if steps is not None and is_stale(state, steps[0]) else None


def ratio_steps(tree: TreeState, parameters: range) -> tuple[int, int] | None:
    """Return the first and the last step of the update ratios of those of these parameters that train; None if there is none.

    Parameters are measured in turn, so that a ratio of many is of several steps.
    """
    if not tree.gradient_figures:
        return None
    measured = [
        tree.gradient_figures[index]
        for index in parameters
        if index in tree.gradient_figures and tree.trainable[index] == "1"
    ]
    steps = [step for step, figures in measured if figures.update_ratio is not None]
    return (min(steps), max(steps)) if steps else None
