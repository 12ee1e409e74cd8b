"""The functions of the reducer for what is measured of every step. Pure except for the state that they update.

A script may have several optimizers, whose losses must not be compared: `main_optimizer.py` says which one's are the curves of
the run. An optimizer of the same parameters as an earlier one, or of the same models as one that is gone, continues its curves:
some scripts make a new one now and then, or for each batch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gradtui.protocol import events as ev
from gradtui.protocol.device_memory import DeviceMemory, joined
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer.main_optimizer import MAX_OPTIMIZERS, is_replaced, note_steps, rename_main, summarise
from gradtui.run.state.optimizers.optimizer_names import models_of, tensors_text
from gradtui.run.state.optimizers.optimizer_turns import ends_of
from gradtui.run.state.parts.bounds import Bound, bound_of_peak
from gradtui.run.state.parts.curves import HighestTotal, NormSummary, OptimizerCurves
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.text.memory import spike_text

MAX_FORMER = 1024
"""Optimizers that are gone whose steps one row continues, the newest; of earlier ones the steps alone are kept."""
_MAX_KNOWN = 4096
MAX_SPIKES = 256


def optimizers_found(state: RunState, event: ev.OptimizersFound) -> None:
    known = len(state.optimizers)
    state.optimizers = event.optimizers
    state.curves_of.clear()
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
        if note_steps(state, optimizer, losses.steps):
            state.loss.extend(losses.steps, losses.losses)
    for figures in event.figures:
        take_figures(state, figures)


def take_figures(state: RunState, figures: ev.StepFigures) -> None:
    """Add the figures of one step to the curves."""
    optimizer = _continued(state, figures.optimizer)
    _take_own(state, figures, optimizer)
    if figures.total is not None:
        state.micro_norms.applied(figures.step)
    if not note_steps(state, optimizer, (figures.step,)):
        return
    if figures.loss is not None:
        state.loss.append(figures.step, figures.loss)
    if figures.before_clipping is not None:
        state.before_clipping.append(figures.step, figures.before_clipping)
        state.script_calls.take_clipped(figures.step, figures.before_clipping, figures.total)
        state.clipped_at = figures.clipped_at
        # Clipping at infinity is how scripts ask for the norm alone.
        if figures.clipped_at is not None and math.isfinite(figures.clipped_at):
            state.clip_thresholds.append(figures.step, figures.clipped_at)
    if figures.total is not None:
        state.gradient_norm.append(figures.step, figures.total)
        former = state.norm_summary
        if former.of_earlier_models and figures.step > former.replaced_at:
            state.norm_summary = NormSummary(since_step=former.replaced_at, steps_before=former.steps_when_replaced)
        summarise(state.norm_summary, figures.step, figures.total, as_applied=figures.as_applied)


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
    """Return under which index the curves of an optimizer are: its own, or that of another one whose curves it continues."""
    if optimizer in state.of_optimizers:
        return optimizer
    known = state.curves_of.get(optimizer)
    if known is not None:
        return known
    found = state.curves_of[optimizer] = _found(state, optimizer)
    if len(state.curves_of) > _MAX_KNOWN:
        del state.curves_of[next(iter(state.curves_of))]
    return found


def _found(state: RunState, optimizer: int) -> int:
    known = state.optimizers
    parameters = known[optimizer].parameters if 0 <= optimizer < len(known) else ()
    same = (each for each in state.of_optimizers if 0 <= each < len(known) and known[each].parameters == parameters)
    first = next(same, None) if parameters else None
    if first is not None:
        _add_former(state, state.of_optimizers[first], optimizer)
        return first
    gone = _gone(state, optimizer)
    if gone is not None:
        _add_former(state, state.of_optimizers[gone], gone)
        state.of_optimizers = {
            optimizer if index == gone else index: each for index, each in state.of_optimizers.items()
        }
        rename_main(state, gone, optimizer)
        # Others have been found to have their curves under the index of the one that is gone.
        state.curves_of.clear()
    return optimizer


def _add_former(state: RunState, curves: OptimizerCurves, optimizer: int) -> None:
    """Note that the steps of another optimizer are steps of this row, too."""
    curves.former[optimizer] = None
    if len(curves.former) <= MAX_FORMER:
        return
    known = state.optimizers
    oldest = next((each for each in curves.former if each >= len(known) or known[each].freed), None)
    if oldest is not None:
        # One that is gone makes no further steps.
        del curves.former[oldest]
        curves.former_steps += state.optimizer_steps[oldest] if 0 <= oldest < len(state.optimizer_steps) else 0


def _gone(state: RunState, optimizer: int) -> int | None:
    """Return the index of an optimizer that no longer exists and had the same models, whose curves this one continues.

    None if there is none, or if its models have been replaced since, as in the folds of a cross-validation: losses and norms
    begin again with new models.
    """
    if optimizer >= len(state.optimizers):
        # There are so many new ones that they are not described at once. If they are all of the same models, this is one more.
        renewed = [index for index, each in state.of_optimizers.items() if each.former]
        return renewed[0] if len(renewed) == 1 and not _is_of_earlier_models(state, renewed[0]) else None
    freed = [index for index, each in enumerate(state.optimizers) if each.freed and index in state.of_optimizers]
    if not freed or optimizer < 0:
        return None
    models, only = models_of(state.tree, state.optimizers[optimizer])
    former = [(index, state.of_optimizers[index]) for index in freed]
    same = (index for index, curves in former if models and (curves.models, curves.only_model) == (models, only))
    return next((index for index in same if not _is_of_earlier_models(state, index)), None)


def _is_of_earlier_models(state: RunState, index: int) -> bool:
    ends = ends_of(state.of_optimizers[index])
    return ends is not None and is_replaced(state, ends[1])


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


def step_memory_measured(state: RunState, event: ev.StepMemoryMeasured) -> None:
    memory = state.step_memory
    if memory.newest is None:
        for record in state.phases.values():
            record.totals = Series()
    for totals in event.totals:
        memory.has_gaps |= memory.newest is not None and totals.step > memory.newest.step + 1
        memory.newest = totals
        named = [
            (Phase.FORWARD, totals.forward, totals.forward_peak),
            (Phase.BACKWARD, totals.backward, totals.backward_peak),
            (Phase.OPTIMIZER, totals.optimizer, totals.optimizer_peak),
        ]
        known = [(phase, total) for phase, total, _ in named if total is not None]
        for phase, total in known:
            state.phases[phase].totals.append(totals.step, total)
            raise_peak(state, phase, totals.step, total, "at least")
        note_devices(state, totals.devices)
        peaks = [(phase, peak) for phase, _, peak in named if peak is not None]
        bound = bound_of_peak(is_exact=True, devices=totals.devices)
        for phase, peak in peaks:
            raise_peak(state, phase, totals.step, peak, bound)
        if totals.peak is None:
            continue
        memory.peak.append(totals.step, totals.peak)
        memory.peaks_exact = memory.peaks_exact and totals.peak_exact
        if totals.peak_exact and known and not peaks:
            # An earlier version recorded the peak of the step only: the phase with the highest total is the likely one.
            likely = max(known, key=lambda each: each[1])[0]
            raise_peak(state, likely, totals.step, totals.peak, bound)
        elif totals.peak_exact and totals.peak > max((peak for _, peak in peaks), default=0):
            highest = HighestTotal(totals.peak, totals.step, None, bound, totals.step - totals.unread)
            memory.highest_unread = max(memory.highest_unread or highest, highest, key=lambda each: each.bytes)
            _raise_highest(state, highest)


def note_devices(state: RunState, devices: tuple[DeviceMemory, ...]) -> None:
    """Note the newest total of each of several devices, and its highest peak."""
    if devices:
        state.step_memory.devices = joined(state.step_memory.devices, devices)


def raise_peak(state: RunState, phase: Phase, step: int, peak: int, bound: Bound, models: tuple[int, ...] = ()) -> None:
    """Note the highest known total of a phase in a step. Only sampled steps say which models have run."""
    if phase is not Phase.LOAD:
        _raise_highest(state, HighestTotal(peak, step, phase, bound))
    record = state.phases[phase]
    if record.peak is None or peak > record.peak:
        record.peak, record.peak_bound, record.peak_step, record.peak_models = peak, bound, step, models
    elif (peak, step) == (record.peak, record.peak_step):
        # A total at the end of a phase is a lower bound of its peak, and may be equal to it.
        record.peak_bound = bound if record.peak_bound == "at least" else record.peak_bound
        record.peak_models = models or record.peak_models


def _raise_highest(state: RunState, total: HighestTotal) -> None:
    before, changed = state.step_memory.highest, state.changed_after
    if before is None or before.step <= changed < total.step:
        state.step_memory.highest = total
    elif total.step > changed or before.step <= changed:
        if replace(total, bound=before.bound) == before:
            # A total at the end of a phase is a lower bound of its peak, and may be equal to it.
            before = total if before.bound == "at least" else before
        state.step_memory.highest = max(before, total, key=lambda each: each.bytes)


def phase_peak_measured(state: RunState, event: ev.PhasePeakMeasured) -> None:
    note_devices(state, event.devices)
    bound = bound_of_peak(is_exact=True, devices=event.devices)
    raise_peak(state, event.phase, event.step, event.peak, bound)


def memory_spike_found(state: RunState, event: ev.MemorySpikeFound) -> None:
    memory = state.step_memory
    memory.spikes.append(event)
    del memory.spikes[:-MAX_SPIKES]
    memory.spike_count = max(event.number, memory.spike_count)
    state.note(event, "spike", spike_text(state, event))
