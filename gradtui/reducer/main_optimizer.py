"""Which optimizer is the main one, whose losses and norms are the curves of the run. Pure except for the state.

The main optimizer is the first one that makes a step. Another one takes its place when it has made `_TAKES_OVER` measured steps
and the main one none: the script trains in stages. If an optimizer that was the main one steps again, the two take turns: it is
the main one again, and what came after it never takes over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradtui.state.curves import FormerMain, OptimizerCurves, StepsSince
from gradtui.state.norm_summary import NormSummary
from gradtui.state.optimizer_turns import ends_of, steps_of
from gradtui.state.run_state import RunState

_TAKES_OVER = 8
MAX_OPTIMIZERS = 64
"""Optimizers with curves of their own: a script may have one for each parameter."""


def is_main(state: RunState, optimizer: int, steps: Sequence[int]) -> bool:
    """Note that an optimizer has made these measured steps, of which its own curves have the figures already.

    Returns:
        Whether the curves of the run still lack these figures. Those of an optimizer that becomes the main one are taken from
        its own curves.
    """
    if state.main_optimizer is None:
        state.main_optimizer = optimizer
    if optimizer == state.main_optimizer:
        if steps[-1] > state.main_step:
            state.main_step = steps[-1]
            state.others_since.clear()
        # Figures of steps in an earlier turn may come after it has taken over.
        return steps[-1] >= state.main_since
    if optimizer in state.former_mains:
        # The figures of its last steps may come after the other one has taken over.
        return steps[-1] > state.main_since and _return_to(state, optimizer, steps[-1])
    if optimizer in state.in_turns:
        return False
    since = state.others_since.get(optimizer)
    after = max(state.main_step, since.newest if since is not None else -1)
    new = [step for step in steps if step > after]
    if not new:
        return False
    if since is None:
        since = state.others_since[optimizer] = StepsSince(new[0])
        if len(state.others_since) > MAX_OPTIMIZERS:
            del state.others_since[next(iter(state.others_since))]
    since.count, since.newest = since.count + len(new), new[-1]
    if since.count < (1 if _is_main_replaced(state) else _TAKES_OVER):
        return False
    return _take_over(state, optimizer, since)


def rename_main(state: RunState, gone: int, optimizer: int) -> None:
    """Note that the steps of an optimizer that is gone count as those of another one."""
    if state.main_optimizer == gone:
        state.main_optimizer = optimizer
    if gone in state.former_mains:
        state.former_mains[optimizer] = state.former_mains.pop(gone)
    if gone in state.others_since:
        state.others_since[optimizer] = state.others_since.pop(gone)
    if gone in state.in_turns:
        state.in_turns.remove(gone)
        state.in_turns.add(optimizer)


def is_replaced(state: RunState, last_step: int) -> bool:
    """Return whether all models that had trained until a step have been replaced by others since."""
    return any(change.replaces and change.step >= last_step for change in state.model_changes)


def _is_main_replaced(state: RunState) -> bool:
    main = state.main_optimizer
    if main is None or main < 0 or not is_replaced(state, state.main_step):
        return False
    return main >= len(state.optimizers) or not state.optimizers[main].parameters


def _take_over(state: RunState, optimizer: int, since: StepsSince) -> bool:
    """Make another optimizer the main one, with the steps that it has made since the newest step of the former one."""
    assert state.main_optimizer is not None
    state.former_mains[state.main_optimizer] = FormerMain(state.main_since, state.norm_summary)
    if len(state.former_mains) > MAX_OPTIMIZERS:
        del state.former_mains[next(iter(state.former_mains))]
    state.main_optimizer, state.main_since, state.main_step = optimizer, since.first, since.newest
    state.others_since.clear()
    state.norm_summary = NormSummary(since_step=since.first)
    curves = state.of_optimizers.get(optimizer)
    if curves is None:
        return True
    ends = ends_of(curves)
    if ends is not None and ends[0] < since.first:
        state.norm_summary.steps_before = max(0, steps_of(state, optimizer) - since.count)
    _append_own(state, curves)
    return False


def _return_to(state: RunState, optimizer: int, step: int) -> bool:
    """Make an optimizer the main one again, as if no other one had taken over since."""
    assert state.main_optimizer is not None
    mains = [*state.former_mains]
    later = mains[mains.index(optimizer) + 1 :]
    began = min([state.main_since, *(state.former_mains[each].since for each in later)])
    for series in (state.loss, state.gradient_norm, state.before_clipping, state.clip_thresholds):
        series.cut(began)
    state.in_turns.update(later, (state.main_optimizer,))
    former = state.former_mains.pop(optimizer)
    for each in later:
        del state.former_mains[each]
    state.main_optimizer, state.main_since, state.main_step = optimizer, former.since, step
    state.norm_summary = former.norm_summary
    state.others_since.clear()
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
