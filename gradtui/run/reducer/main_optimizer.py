"""Which optimizer is the main one, whose losses and norms are the curves of the run. Pure except for the state.

The main optimizer is the first one that makes a step. Another one takes its place when it has made `_TAKES_OVER` measured steps
and the main one none: the script trains in stages. If an optimizer that was the main one steps again, the two take turns: it is
the main one again, and what came after it never takes over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.run.state.optimizers.optimizer_turns import ends_of, main_steps
from gradtui.run.state.parts.curves import FormerMain, OptimizerCurves, StepsSince
from gradtui.run.state.parts.norm_summary import NormSummary
from gradtui.run.state.run_state import RunState

_TAKES_OVER = 8
MAX_OPTIMIZERS = 64
"""Optimizers with curves of their own: a script may have one for each parameter."""


def note_steps(state: RunState, optimizer: int, steps: Sequence[int]) -> bool:
    """Note measured steps of an optimizer, and decide which optimizer is the main one after them.

    The optimizer's own curves must have the figures of these steps already: if it becomes the main one here, the curves of the
    run are continued with its own.

    Returns:
        Whether the caller must append the figures of these steps to the curves of the run.
    """
    changes = state.main_changes
    if state.main_optimizer is None:
        state.main_optimizer = optimizer
    if optimizer == state.main_optimizer:
        if steps[-1] > changes.newest:
            changes.newest = steps[-1]
            changes.others.clear()
        # Figures of steps in an earlier turn may come after it has taken over.
        return steps[-1] >= state.main_since
    if optimizer in changes.former:
        # The figures of its last steps may come after the other one has taken over.
        return steps[-1] > state.main_since and _return_to(state, optimizer, steps[-1])
    if optimizer in changes.in_turns:
        return False
    since = changes.others.get(optimizer)
    after = max(changes.newest, since.newest if since is not None else -1)
    new = [step for step in steps if step > after]
    if not new:
        return False
    if since is None:
        since = changes.others[optimizer] = StepsSince(new[0])
        if len(changes.others) > MAX_OPTIMIZERS:
            del changes.others[next(iter(changes.others))]
    since.count, since.newest = since.count + len(new), new[-1]
    if since.count < (1 if _is_main_replaced(state) else _TAKES_OVER):
        return False
    return _take_over(state, optimizer, since)


def rename_main(state: RunState, gone: int, optimizer: int) -> None:
    """Note that the steps of an optimizer that is gone count as those of another one."""
    changes = state.main_changes
    if state.main_optimizer == gone:
        state.main_optimizer = optimizer
    changes.former = {optimizer if index == gone else index: former for index, former in changes.former.items()}
    if gone in changes.others:
        changes.others[optimizer] = changes.others.pop(gone)
    if gone in changes.in_turns:
        changes.in_turns.remove(gone)
        changes.in_turns.add(optimizer)


def is_replaced(state: RunState, last_step: int) -> bool:
    """Return whether all models that had trained until a step have been replaced by others since."""
    return any(change.replaces and change.step >= last_step for change in state.model_changes)


def _is_main_replaced(state: RunState) -> bool:
    main = state.main_optimizer
    if main is None or main < 0 or not is_replaced(state, state.main_changes.newest):
        return False
    return main >= len(state.optimizers) or not state.optimizers[main].parameters


def _take_over(state: RunState, optimizer: int, since: StepsSince) -> bool:
    """Make another optimizer the main one, with the steps that it has made since the newest step of the former one."""
    changes = state.main_changes
    assert state.main_optimizer is not None
    changes.former[state.main_optimizer] = FormerMain(state.main_since, state.norm_summary)
    if len(changes.former) > MAX_OPTIMIZERS:
        del changes.former[next(iter(changes.former))]
    state.main_optimizer, state.main_since, changes.newest = optimizer, since.first, since.newest
    changes.others.clear()
    state.norm_summary = NormSummary(since_step=since.first)
    curves = state.of_optimizers.get(optimizer)
    ends = ends_of(curves) if curves is not None else None
    if optimizer < 0:
        state.norm_summary.steps_before = since.first - 1
    elif ends is None or ends[0] < since.first:
        state.norm_summary.steps_before = max(0, main_steps(state) - since.count)
    if curves is None:
        return True
    _append_own(state, curves)
    return False


def _return_to(state: RunState, optimizer: int, step: int) -> bool:
    """Make an optimizer the main one again, as if no other one had taken over since."""
    changes = state.main_changes
    assert state.main_optimizer is not None
    mains = [*changes.former]
    later = mains[mains.index(optimizer) + 1 :]
    began = min([state.main_since, *(changes.former[index].since for index in later)])
    for series in (state.loss, state.gradient_norm, state.before_clipping, state.clip_thresholds):
        series.cut(began)
    changes.in_turns.update(later, (state.main_optimizer,))
    former = changes.former.pop(optimizer)
    for index in later:
        del changes.former[index]
    state.main_optimizer, state.main_since, changes.newest = optimizer, former.since, step
    state.norm_summary = former.norm_summary
    changes.others.clear()
    curves = state.of_optimizers.get(optimizer)
    if curves is not None:
        _append_own(state, curves)
    return curves is None


def _append_own(state: RunState, curves: OptimizerCurves) -> None:
    """Append what the main optimizer has measured since it is the main one."""
    for series, own in ((state.loss, curves.loss), (state.gradient_norm, curves.gradient_norm)):
        newest = series.steps[-1] if series.steps else -1
        for step, value in own:
            if step > newest and step >= state.main_since:
                series.append(step, value)
    summary = state.norm_summary
    newest = max(summary.since_step - 1, summary.last_step or 0)
    for step, total in curves.gradient_norm:
        if step > newest:
            summarise(summary, step, total, as_applied=True)


def summarise(summary: NormSummary, step: int, total: float, *, as_applied: bool) -> None:
    """Add a total norm."""
    if summary.first is None:
        summary.first, summary.first_step = total, step
    summary.last, summary.last_step = total, step
    summary.measured_steps += 1
    summary.unconfirmed_steps += not as_applied
    if not math.isfinite(total):
        summary.not_finite_steps += 1
        return
    if summary.smallest is None or total < summary.smallest:
        summary.smallest, summary.smallest_step = total, step
    if summary.largest is None or total > summary.largest:
        summary.largest, summary.largest_step = total, step
