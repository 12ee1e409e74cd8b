"""The functions of the reducer for what is measured of every step. Pure except for the state that they update.

A script may have several optimizers, whose losses must not be compared. The main optimizer is the first one that makes a step.
Another one takes its place when it has made `_TAKES_OVER` measured steps and the main one none: the script trains in stages.
An optimizer of the same parameters as an earlier one, or of the same models as one that is gone, continues its curves: some
scripts make a new one now and then, or for each batch.
"""

from __future__ import annotations

import math

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.state.curves import OptimizerCurves
from gradtui.state.norm_summary import NormSummary
from gradtui.state.optimizer_names import models_of, tensors_text
from gradtui.state.run_state import PhaseRecord, RunState
from gradtui.state.series import Series
from gradtui.text import spike_text

_TAKES_OVER = 8
MAX_OPTIMIZERS = 64
"""Optimizers with curves of their own: a script may have one for each parameter."""
MAX_SPIKES = 256


def optimizers_found(state: RunState, event: ev.OptimizersFound) -> None:
    known = len(state.optimizers)
    state.optimizers = event.optimizers
    state.optimizer_steps += [0] * (len(event.optimizers) - len(state.optimizer_steps))
    for optimizer in event.optimizers[known:]:
        state.note(event, "model", f"found optimizer {optimizer.type_name}")
    name_optimizers(state)


def steps_measured(state: RunState, event: ev.StepsMeasured) -> None:
    for losses in event.losses:
        optimizer = _continued(state, losses.optimizer)
        curves = _curves_of(state, optimizer)
        if curves is not None:
            curves.loss.extend(losses.steps, losses.losses)
            curves.loss_of = ""
            for step, loss in zip(losses.steps, losses.losses):
                curves.loss_extremes.take(step, loss)
        if _is_main(state, optimizer, len(losses.steps)):
            state.loss.extend(losses.steps, losses.losses)
    for figures in event.figures:
        take_figures(state, figures)


def take_figures(state: RunState, figures: ev.StepFigures) -> None:
    """Add the figures of one step to the curves."""
    optimizer = _continued(state, figures.optimizer)
    _take_own(state, figures, optimizer)
    if figures.total is not None:
        state.micro_norms.applied(figures.step)
    if not _is_main(state, optimizer):
        return
    if figures.loss is not None:
        state.loss.append(figures.step, figures.loss)
    if figures.before_clipping is not None:
        state.before_clipping.append(figures.step, figures.before_clipping)
        state.clipped_at = figures.clipped_at
        # Clipping at infinity is how scripts ask for the norm alone.
        if figures.clipped_at is not None and math.isfinite(figures.clipped_at):
            state.clip_thresholds.append(figures.step, figures.clipped_at)
    if figures.total is not None:
        state.gradient_norm.append(figures.step, figures.total)
        if state.norm_summary.of_earlier_models:
            state.norm_summary = NormSummary(since_step=state.norm_summary.replaced_at)
        _summarise(state.norm_summary, figures.step, figures.total, as_applied=figures.as_applied)


def _take_own(state: RunState, figures: ev.StepFigures, optimizer: int) -> None:
    curves = _curves_of(state, optimizer)
    if curves is None:
        return
    if figures.loss is not None:
        curves.loss.append(figures.step, figures.loss)
        curves.loss_extremes.take(figures.step, figures.loss)
        curves.loss_of = figures.loss_of
    if figures.total is not None:
        curves.gradient_norm.append(figures.step, figures.total)
        curves.norm_extremes.take(figures.step, figures.total)


def _continued(state: RunState, optimizer: int) -> int:
    """Return the optimizer under whose index the curves of this one are. Those of one that is gone become its own."""
    if optimizer in state.of_optimizers:
        return optimizer
    known = state.optimizers
    parameters = known[optimizer].parameters if 0 <= optimizer < len(known) else ()
    same = (each for each in state.of_optimizers if 0 <= each < len(known) and known[each].parameters == parameters)
    first = next(same, None) if parameters else None
    if first is not None:
        state.of_optimizers[first].former.add(optimizer)
        return first
    gone = _gone(state, optimizer)
    if gone is not None:
        state.of_optimizers[gone].former.add(gone)
        state.of_optimizers = {
            optimizer if index == gone else index: each for index, each in state.of_optimizers.items()
        }
        if state.main_optimizer == gone:
            state.main_optimizer = optimizer
    return optimizer


def _gone(state: RunState, optimizer: int) -> int | None:
    """Return the optimizer of the same models that no longer exists."""
    if optimizer >= len(state.optimizers):
        # There are so many new ones that they are not described at once. If they are all of the same models, this is one more.
        renewed = [index for index, each in state.of_optimizers.items() if each.former]
        return renewed[0] if len(renewed) == 1 else None
    freed = [index for index, each in enumerate(state.optimizers) if each.freed and index in state.of_optimizers]
    models = models_of(state.tree, state.optimizers[optimizer])[0] if freed and optimizer >= 0 else ""
    return next((index for index in freed if models and state.of_optimizers[index].models == models), None)


def _curves_of(state: RunState, optimizer: int) -> OptimizerCurves | None:
    if optimizer not in state.of_optimizers:
        if len(state.of_optimizers) >= MAX_OPTIMIZERS:
            return None
        state.of_optimizers[optimizer] = OptimizerCurves()
        _name(state, optimizer, state.of_optimizers[optimizer])
    return state.of_optimizers[optimizer]


def name_optimizers(state: RunState) -> None:
    """Note which models the optimizers own, as far as these are listed: the names outlive the models."""
    for index, curves in state.of_optimizers.items():
        _name(state, index, curves)


def _name(state: RunState, index: int, curves: OptimizerCurves) -> None:
    if not 0 <= index < len(state.optimizers):
        return
    optimizer = state.optimizers[index]
    models, only = models_of(state.tree, optimizer)
    if models:
        curves.models, curves.only_model = models, only
    elif not curves.models and state.tree.models:
        curves.models = tensors_text(optimizer)


def _is_main(state: RunState, optimizer: int, count: int = 1) -> bool:
    """Return whether this is the main optimizer, which has made `count` measured steps; note which one that is now."""
    if state.main_optimizer is None:
        state.main_optimizer = optimizer
    if optimizer == state.main_optimizer:
        state.others_since.clear()
        return True
    steps = state.others_since[optimizer] = state.others_since.get(optimizer, 0) + count
    if steps >= _TAKES_OVER:
        _take_over(state, optimizer)
    return False


def _take_over(state: RunState, optimizer: int) -> None:
    """Make another optimizer the main one, with the steps that it has made since the newest step of the former one."""
    state.main_optimizer = optimizer
    state.others_since.clear()
    curves = state.of_optimizers.get(optimizer)
    if curves is None:
        return
    firsts = [_append_newer(state.loss, curves.loss), _append_newer(state.gradient_norm, curves.gradient_norm)]
    state.main_since = min([step for step in firsts if step is not None], default=state.main_since)
    since = state.main_since
    state.norm_summary = NormSummary(since_step=since)
    for step, total in curves.gradient_norm:
        if step >= since:
            _summarise(state.norm_summary, step, total, as_applied=True)


def _append_newer(series: Series, other: Series) -> int | None:
    """Append the points that are newer than the newest of `series`; return the step of the first one."""
    newest = series.steps[-1] if series.steps else -1
    newer = [(step, value) for step, value in other if step > newest]
    for step, value in newer:
        series.append(step, value)
    return newer[0][0] if newer else None


def _summarise(summary: NormSummary, step: int, total: float, *, as_applied: bool) -> None:
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


def step_memory_measured(state: RunState, event: ev.StepMemoryMeasured) -> None:
    memory = state.step_memory
    memory.exact = event.exact
    if memory.newest is None:
        for record in state.phases.values():
            record.totals = Series()
    for totals in event.totals:
        memory.newest = totals
        named = [
            (Phase.FORWARD, totals.forward),
            (Phase.BACKWARD, totals.backward),
            (Phase.OPTIMIZER, totals.optimizer),
        ]
        known = [(phase, total) for phase, total in named if total is not None]
        for phase, total in known:
            state.phases[phase].totals.append(totals.step, total)
            _raise_peak(state.phases[phase], totals.step, total, is_exact=False)
        if totals.peak is None:
            continue
        memory.peak.append(totals.step, totals.peak)
        memory.peaks_exact = memory.peaks_exact and totals.peak_exact
        if totals.peak_exact and known:
            # The allocator knows the peak of the step, and the phase with the highest total is the likely one.
            highest = max(known, key=lambda each: each[1])[0]
            _raise_peak(state.phases[highest], totals.step, totals.peak, is_exact=True)


def _raise_peak(record: PhaseRecord, step: int, peak: int, *, is_exact: bool) -> None:
    if record.peak is None or peak > record.peak:
        # Only sampled steps say which models have run.
        record.peak, record.peak_exact, record.peak_step, record.peak_models = peak, is_exact, step, ()


def memory_spike_found(state: RunState, event: ev.MemorySpikeFound) -> None:
    memory = state.step_memory
    memory.spikes.append(event)
    del memory.spikes[:-MAX_SPIKES]
    memory.spike_count = max(event.number, memory.spike_count)
    state.note(event, "spike", spike_text(state, event))
