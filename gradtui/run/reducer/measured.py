"""The functions of the reducer for events that carry measurements. Pure except for the state that they update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import ParameterState, Phase
from gradtui.run.reducer.results import apart_of, keep_peaks
from gradtui.run.reducer.step_figures import note_devices, raise_peak, take_figures
from gradtui.run.reducer.trainable import take_trainable, without_norms_before_freezes
from gradtui.run.reducer.turns import take_gradient_flow, take_saved
from gradtui.run.state.memory.devices import device_trouble
from gradtui.run.state.memory.step_curve import PHASES_OF_STEP
from gradtui.run.state.over_steps.markers import model_breaks
from gradtui.run.state.parts.bounds import bound_of_peak
from gradtui.run.state.parts.resume import MAX_SAVED
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.bad_steps import loss_spike_text, nonfinite_text
from gradtui.run.text.driver import NVML, nvml_trouble_text
from gradtui.run.text.memory import growth_text
from gradtui.run.text.problem_states import moved_text

HISTOGRAMS_KEPT = 256
_ROWS_KEPT = 32
_SPIKES_KEPT = 256
_FORECASTS_KEPT = 256
_TROUBLES_REPORTED = 3
"""Failures of the NVIDIA driver's library that are in the log, as for any part of gradtui."""

_Told = TypeVar("_Told")
_Measured = TypeVar("_Measured", ev.GradientFlowMeasured, ev.SavedBytesMeasured)


def gradients_measured(state: RunState, event: ev.GradientsMeasured) -> None:
    event = without_norms_before_freezes(state.tree, event)
    was_finite = state.gradient_norm.last is None or math.isfinite(state.gradient_norm.last)
    take_figures(
        state,
        ev.StepFigures(
            event.step, event.optimizer, event.loss, event.loss_of, event.total, event.before_clipping, event.clipped_at,
            event.as_applied,
        ),
    )  # fmt: skip
    if event.norms is not None and len(event.norms) == len(state.tree.parameters):
        state.tree.norms, state.tree.norms_step, state.tree.norm_steps = event.norms, event.step, event.norm_steps
        state.history.append(event.step, _norms_of_present_models(state, event))
        # Gone through once, not at every step of a run that is lost.
        if was_finite and event.total is not None and not math.isfinite(event.total):
            _mark_not_finite(state.tree, event.norms)
        _renew_states(state.tree, event)


def _norms_of_present_models(state: RunState, event: ev.GradientsMeasured) -> tuple[float | None, ...]:
    """Return the norms of an event, None for those that were read while other models trained."""
    norms, steps, replaced_at = event.norms or (), event.norm_steps, max(model_breaks(state), default=None)
    if steps is None or replaced_at is None:
        return norms
    return tuple(norm if step is None or step > replaced_at else None for norm, step in zip(norms, steps))


_OWNED = (ParameterState.TRAINED, ParameterState.ZERO, ParameterState.NOT_FINITE, ParameterState.SKIPPED)
_BY_NORM = "".join(state.value for state in _OWNED)
"""The states of parameters that an optimizer owns and that get a gradient. A finite norm decides between trained and zero."""


def _renew_states(tree: TreeState, event: ev.GradientsMeasured) -> None:
    """Let the norms of this step tell trained parameters from those whose gradient is zero.

    Norms are read more often than states. A LoRA matrix whose gradient was zero in the first step trains from the second on. A
    loss scaler that left out the first steps applies the others.
    """
    # A loss scaler leaves out a step in which one gradient overflows, and with it the finite ones.
    if event.total is not None and not math.isfinite(event.total):
        return
    zero, trained = ParameterState.ZERO.value, ParameterState.TRAINED.value
    norms, steps, letters = event.norms or (), event.norm_steps, tree.states
    # These searches are in C, and most runs have none of these states.
    if 0.0 not in norms and not any(letter in letters for letter in _BY_NORM if letter != trained):
        return
    is_now = [step == event.step for step in steps] if steps is not None else [True] * len(norms)
    tree.states = "".join(
        (zero if norm == 0 else trained)
        if now and letter in _BY_NORM and norm is not None and math.isfinite(norm)
        else letter
        for letter, norm, now in zip(letters, norms, is_now)
    )


def _mark_not_finite(tree: TreeState, norms: Sequence[float | None]) -> None:
    """Set the state that trained parameters will have at the next sampled step: a held run may have none for a long time."""
    trained, broken = ParameterState.TRAINED.value, ParameterState.NOT_FINITE.value
    tree.states = "".join(
        broken if letter == trained and norm is not None and not math.isfinite(norm) else letter
        for letter, norm in zip(tree.states, norms)
    )


def gradient_figures_measured(state: RunState, event: ev.GradientFiguresMeasured) -> None:
    state.tree.gradient_figures_step = event.step
    for figures in event.figures:
        if figures.parameter < len(state.tree.parameters):
            state.tree.gradient_figures[figures.parameter] = (event.step, figures)
            if figures.update_ratio is not None:
                state.tree.ratios.append(figures.parameter, event.step, figures.update_ratio)


def gradient_histograms_measured(state: RunState, event: ev.GradientHistogramsMeasured) -> None:
    kept = state.tree.histograms
    for histogram in event.histograms:
        if histogram.parameter < len(state.tree.parameters):
            # Last in order is the newest: the oldest gives way.
            kept.pop(histogram.parameter, None)
            kept[histogram.parameter] = (event.step, histogram)
    while len(kept) > HISTOGRAMS_KEPT:
        del kept[next(iter(kept))]


def gradient_path_found(state: RunState, event: ev.GradientPathFound) -> None:
    state.tree.followed.discard(event.path)
    if event.module < len(state.tree.modules):
        _keep_newest(state.tree.gradient_paths, event.path, event)


def optimizer_state_read(state: RunState, event: ev.OptimizerStateRead) -> None:
    _keep_newest(state.tree.optimizer_state, event.path, event)


def _keep_newest(kept: dict[str, _Told], path: str, event: _Told) -> None:
    kept.pop(path, None)
    kept[path] = event
    if len(kept) > _ROWS_KEPT:
        del kept[next(iter(kept))]


def non_finite_found(state: RunState, event: ev.NonFiniteFound) -> None:
    state.bad_step, state.newest_bad_step = state.bad_step or event, event
    # The pause is over with the first bad step, whether or not the run could be held there.
    state.pauses_at_bad_step = False
    state.note(event, "not finite", nonfinite_text(event, with_hold=True))


def non_finite_settled(state: RunState, event: ev.NonFiniteSettled) -> None:
    if (first := state.bad_step) is not None and first.number == event.number:
        state.bad_step = replace(first, outcome=event.outcome)
    if (newest := state.newest_bad_step) is not None and newest.number == event.number:
        state.newest_bad_step = replace(newest, outcome=event.outcome)


def spike_found(state: RunState, event: ev.SpikeFound) -> None:
    state.spikes.append(event)
    del state.spikes[:-_SPIKES_KEPT]
    state.spike_count = max(event.number, state.spike_count)
    state.note(event, "loss spike", loss_spike_text(event))


def spike_settled(state: RunState, event: ev.SpikeSettled) -> None:
    state.spikes = [
        replace(each, back_at=event.back_at, stays=event.back_at is None) if each.number == event.number else each
        for each in state.spikes
    ]


def memory_measured(state: RunState, event: ev.MemoryMeasured) -> None:
    record = state.phases[event.phase]
    record.last = event
    if state.step_memory.newest is None and event.held.total is not None:
        # Until the totals of every step come; old recordings have none.
        record.totals.append(event.step, event.held.total)
    other = event.held.other
    # Where a category is an estimate, what is in none may come out negative, and says nothing.
    if other is not None and other > 0:
        if event.phase is Phase.LOAD:
            state.held_since_load = other
        elif event.phase in PHASES_OF_STEP and state.held_since_load is not None:
            state.held_since_load = min(state.held_since_load, other)
    if event.phase is Phase.OPTIMIZER and state.unexplained_first is None:
        state.unexplained_first = event.held.other
    growth = state.growth.add(event) if event.phase is Phase.OPTIMIZER else None
    if growth is not None:
        state.note(event, "growth", growth_text(growth))
    note_devices(state, event.devices)
    if event.peak is not None:
        bound = bound_of_peak(is_exact=event.peak_exact, devices=event.devices)
        raise_peak(state, event.phase, event.step, event.peak, bound, event.models)


def device_times_measured(state: RunState, event: ev.DeviceTimesMeasured) -> None:
    for phase, seconds in event.phases:
        record = state.phases[phase]
        record.device_seconds += seconds
        record.device_steps += 1
    state.device_load.ends += event.ends
    state.device_load.idle_ends += event.idle_ends


def operations_recorded(state: RunState, event: ev.OperationsRecorded) -> None:
    state.operations, state.forecasts = event, {}


def forecast_made(state: RunState, event: ev.ForecastMade) -> None:
    if state.operations is None or event.step != state.operations.step:
        return
    if len(state.forecasts) >= _FORECASTS_KEPT:
        del state.forecasts[next(iter(state.forecasts))]
    state.forecasts[event.change] = event


def step_memory_profiled(state: RunState, event: ev.StepMemoryProfiled) -> None:
    if len(event.highest) == len(state.tree.modules):
        keep_peaks(state, event)
        state.profile_apart = apart_of(state, event)
        state.step_profile, state.profiled_under = event, (state.tree.trainable, state.tree.checkpointed)


def code_compiled(state: RunState, event: ev.CodeCompiled) -> None:
    if not state.tree.compiled.issuperset(event.modules):
        # What was recorded before they were compiled is not what they do now.
        state.operations, state.forecasts = None, {}
    state.tree.compiled, state.has_compiled_code = frozenset(event.modules), True


def module_times_measured(state: RunState, event: ev.ModuleTimesMeasured) -> None:
    if len(event.forward) == len(state.tree.modules):
        state.tree.times = event


def saved_bytes_measured(state: RunState, event: ev.SavedBytesMeasured) -> None:
    state.earlier_operations.append(event.step, event.earlier_operations)
    tree = state.tree
    if len(event.by_module) == len(tree.modules):
        take_saved(tree, _sharing(event, tree.saved, "by_module", "upstream", "recomputed"))


def gradient_flow_measured(state: RunState, event: ev.GradientFlowMeasured) -> None:
    tree = state.tree
    if len(event.grad_modes) == len(tree.modules) and len(event.gradients) == len(tree.models):
        take_gradient_flow(
            tree, _sharing(event, tree.gradient_flow, "reach", "grad_modes", "training", "called"), state.optimizers
        )


def _sharing(event: _Measured, before: _Measured | None, *names: str) -> _Measured:
    """Return an event with those long values of an earlier one that are equal: they are then equal at a glance."""
    if before is None:
        return event
    return replace(event, **{name: old for name in names if (old := getattr(before, name)) == getattr(event, name)})


def parameters_classified(state: RunState, event: ev.ParametersClassified) -> None:
    if len(event.states) == len(state.tree.parameters):
        moved = moved_text(state, event)
        if event.states.strip(ParameterState.UNKNOWN.value):
            state.trained_tree = None
        take_trainable(state, event)
        state.tree.states = event.states
        state.tree.first_trainable = state.tree.first_trainable or event.trainable
        state.tree.reasons = event.reasons
        if moved is not None:
            state.note(event, "moved", moved)


def metrics_logged(state: RunState, event: ev.MetricsLogged) -> None:
    metrics = state.metrics
    for points in event.points:
        metrics.take(points)
    for step, passes in event.epochs:
        if not metrics.passes.steps or step > metrics.passes.steps[-1]:
            metrics.passes.append(step, passes)
    metrics.omitted, metrics.dropped = max(metrics.omitted, event.omitted), max(metrics.dropped, event.dropped)


def checkpoint_saved(state: RunState, event: ev.CheckpointSaved) -> None:
    state.resume.saved.append(event)
    del state.resume.saved[:-MAX_SAVED]


def first_batch(state: RunState, event: ev.FirstBatch) -> None:
    batches = state.resume.batches
    batches.setdefault(event.step + 1, event)
    while len(batches) > MAX_SAVED:
        del batches[next(iter(batches))]


def phase_sampled(state: RunState, event: ev.PhaseSampled) -> None:
    state.phase = event.phase


def device_sampled(state: RunState, event: ev.DeviceSampled) -> None:
    before = device_trouble(state.device)
    state.device = event
    state.device_load.add(event)
    trouble = device_trouble(event)
    if trouble == before:
        return
    if trouble is not None:
        state.note_problem(NVML, nvml_trouble_text(trouble))
    failures = state.problems[NVML].failures
    if failures > _TROUBLES_REPORTED:
        return
    text = nvml_trouble_text(trouble) if trouble is not None else "NVML reports the device's figures again"
    is_last = trouble is not None and failures == _TROUBLES_REPORTED
    state.note(event, "probe", text + ("; its further failures are not reported" if is_last else ""))
