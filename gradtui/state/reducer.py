"""One small function per event: how each changes what is known. Pure; nothing here reads a clock or touches torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Intervention, Pause, Resume, RunSteps, RunTo, TraceStep
from gradtui.protocol.vocabulary import Phase
from gradtui.state.command_words import command_words
from gradtui.state.model_records import keep_records, record_words
from gradtui.state.moved import newly_moved
from gradtui.state.out_of_memory import headline
from gradtui.state.run_state import LogEntry, NormSummary, RunState
from gradtui.state.turns import take_reach, take_saved

LOG_LENGTH = 1_000
INTERVENTIONS_KEPT = 1_000
_SMOOTHING = 0.3
"""Weight of the newest sample in the moving averages of the header (rate, cost)."""


def apply(state: RunState, event: ev.Event) -> None:
    """Fold one event into the state."""
    state.version += 1
    state.seconds = max(state.seconds, event.at)
    if isinstance(event, (ev.Progress, ev.RunEnded)):
        # Only these come with the micro-steps and rates that belong to their step.
        state.step = max(state.step, event.step)
    change = _CHANGES.get(type(event))
    if change is not None:
        change(state, event)


def _run_started(state: RunState, event: ev.RunStarted) -> None:
    state.started = event
    _note(state, event, "run", f"started {event.script}")


def _models_found(state: RunState, event: ev.ModelsFound) -> None:
    keep_records(state)
    before = {model.number for model in state.tree.models}
    tree = state.tree
    tree.models, tree.modules, tree.parameters = event.models, event.modules, event.parameters
    unknown = len(event.parameters)
    tree.states, tree.trainable = "-" * unknown, "-" * unknown
    tree.norms, tree.norms_step, tree.saved = None, None, None
    tree.reach, tree.steps, tree.measured = None, (), 0
    tree.turns.clear()
    state.traced = None
    tree.version += 1
    state.history.clear()
    _note_gone(state, event, before)
    names = ", ".join(model.type_name for model in event.models)
    _note(state, event, "model", f"found {names} ({_count(unknown, 'tensor')})")
    if state.norm_summary.measured_steps:
        state.norm_summary.of_earlier_models, state.norm_summary.replaced_at = True, event.step


def _note_gone(state: RunState, event: ev.ModelsFound, before: set[int]) -> None:
    gone = before - {model.number for model in event.models}
    for record in [state.models[number] for number in sorted(gone) if number in state.models]:
        if record.step is not None:
            _note(state, event, "model", f"{record.name} is gone: {record_words(record)}")


def _device_found(state: RunState, event: ev.DeviceFound) -> None:
    if state.started is not None:
        state.started = replace(state.started, device=event.device, ledger=event.ledger)


def _optimizers_found(state: RunState, event: ev.OptimizersFound) -> None:
    known = len(state.optimizers)
    state.optimizers = event.optimizers
    state.optimizer_steps += [0] * (len(event.optimizers) - len(state.optimizer_steps))
    for optimizer in event.optimizers[known:]:
        _note(state, event, "model", f"found optimizer {optimizer.type_name}")


def _progress(state: RunState, event: ev.Progress) -> None:
    state.micro_steps += event.micro_steps
    state.skipped_steps += event.skipped_steps
    state.optimizer_steps += [0] * (len(event.optimizer_steps) - len(state.optimizer_steps))
    for index, steps in enumerate(event.optimizer_steps):
        state.optimizer_steps[index] += steps
    elapsed = 0.0
    for time in event.phases:
        record = state.phases[time.phase]
        record.seconds += time.seconds
        record.count += time.count
        elapsed += time.seconds
    cost = state.cost
    cost.norms_every, cost.ledger_every = event.norms_every, event.ledger_every
    if event.step <= event.steps:
        cost.setup_seconds += event.own_seconds
        return
    cost.own_seconds += event.own_seconds
    cost.steps += event.steps
    cost.step_seconds += elapsed
    cost.unended_seconds += elapsed
    cost.unended_own_seconds += event.own_seconds
    if not event.steps:
        return
    if cost.unended_seconds > 0:
        state.steps_per_second = _smooth(state.steps_per_second, event.steps / cost.unended_seconds)
        cost.recent_us = _smooth(cost.recent_us, cost.unended_own_seconds * 1e6 / event.steps)
        cost.recent_share = _smooth(cost.recent_share, cost.unended_own_seconds / cost.unended_seconds)
    cost.unended_seconds = cost.unended_own_seconds = 0.0


def _gradients_measured(state: RunState, event: ev.GradientsMeasured) -> None:
    if event.loss is not None:
        state.loss.append(event.step, event.loss)
    if event.total is not None:
        state.gradient_norm.append(event.step, event.total)
        if state.norm_summary.of_earlier_models:
            state.norm_summary = NormSummary(since_step=state.norm_summary.replaced_at)
        summary = state.norm_summary
        if not math.isfinite(event.total) and (summary.last is None or math.isfinite(summary.last)):
            _note(state, event, "not finite", _not_finite(state, event))
        summary.first = event.total if summary.first is None else summary.first
        summary.last = event.total
        summary.measured_steps += 1
        if math.isfinite(event.total):
            summary.smallest = event.total if summary.smallest is None else min(summary.smallest, event.total)
            summary.largest = event.total if summary.largest is None else max(summary.largest, event.total)
        else:
            summary.not_finite_steps += 1
    if event.norms is not None and len(event.norms) == len(state.tree.parameters):
        state.tree.norms, state.tree.norms_step = event.norms, event.step
        state.history.append(event.step, event.norms)


def _not_finite(state: RunState, event: ev.GradientsMeasured) -> str:
    """What the first of several steps whose gradients are not finite has shown."""
    known = zip(state.tree.parameters, event.norms or ())
    paths = [info.path for info, norm in known if norm is not None and not math.isfinite(norm)]
    shown = f" in {', '.join(paths[:3])}" + (f" and {len(paths) - 3} more" if len(paths) > 3 else "") if paths else ""
    return f"gradients hold {'NaN' if math.isnan(event.total or 0.0) else 'Inf'}{shown}"


def _ledger_taken(state: RunState, event: ev.LedgerTaken) -> None:
    record = state.phases[event.phase]
    record.last = event
    if event.held.total is not None:
        record.totals.append(event.step, event.held.total)
    if event.phase is Phase.OPTIMIZER and state.unexplained_first is None:
        state.unexplained_first = event.held.other
    growth = state.growth.add(event) if event.phase is Phase.OPTIMIZER else None
    if growth is not None:
        _note(state, event, "growth", str(growth))
    if event.peak is not None:
        higher = record.peak is None or event.peak > record.peak
        record.peak_exact = event.peak_exact if higher else record.peak_exact
        record.peak = event.peak if record.peak is None else max(record.peak, event.peak)


def _step_traced(state: RunState, event: ev.StepTraced) -> None:
    if len(event.highest) == len(state.tree.modules):
        state.traced = event


def _saved_bytes(state: RunState, event: ev.SavedBytesMeasured) -> None:
    if len(event.by_module) == len(state.tree.modules):
        take_saved(state.tree, event)


def _reach(state: RunState, event: ev.GradientReachMeasured) -> None:
    tree = state.tree
    if len(event.grad_modes) == len(tree.modules) and len(event.gradients) == len(tree.models):
        take_reach(tree, event, state.optimizers)


def _classified(state: RunState, event: ev.ParametersClassified) -> None:
    if len(event.states) == len(state.tree.parameters):
        moved = newly_moved(state, event)
        state.tree.states, state.tree.trainable = event.states, event.trainable
        if moved is not None:
            _note(state, event, "moved", moved)


def _phase_sampled(state: RunState, event: ev.PhaseSampled) -> None:
    state.phase = event.phase


def _device_sampled(state: RunState, event: ev.DeviceSampled) -> None:
    state.device = event


def _applied(state: RunState, event: ev.CommandApplied) -> None:
    state.pending.pop(event.command.id, None)
    if isinstance(event.command, Intervention):
        state.interventions.append(event)
        state.intervention_count += 1
        if len(state.interventions) > INTERVENTIONS_KEPT:
            del state.interventions[0]
    if isinstance(event.command, TraceStep):
        # What it shows is an event of its own.
        return
    if isinstance(event.command, (Pause, Resume, RunSteps, RunTo)):
        # That the run holds, or goes on, is an event of its own.
        state.single_steps = isinstance(event.command, RunSteps)
        return
    _note(state, event, "applied", event.text)


def _rejected(state: RunState, event: ev.CommandRejected) -> None:
    state.pending.pop(event.command.id, None)
    _note(state, event, "rejected", f"cannot {command_words(event.command)}: {event.reason}")


def _verified(state: RunState, event: ev.FreezeVerified) -> None:
    if event.moved:
        shown = ", ".join(event.moved[:3]) + (" …" if len(event.moved) > 3 else "")
        _note(state, event, "moved", f"{len(event.moved)} of {event.parameters} frozen tensors moved: {shown}")
        return
    tensors, steps = _count(event.parameters, "tensor"), _count(event.steps, "step")
    _note(state, event, "verified", f"{tensors} held still for {steps}")


def _pause_changed(state: RunState, event: ev.PauseChanged) -> None:
    state.paused = event.paused
    if event.paused or not state.single_steps:
        _note(state, event, "run", "paused" if event.paused else "running")
    if event.paused:
        state.single_steps = False


def _probe_failed(state: RunState, event: ev.ProbeFailed) -> None:
    state.problems[event.part] = event.error
    ending = "; it is switched off" if event.disabled else ""
    _note(state, event, "probe", f"{event.part} failed: {event.error}{ending}; training was not touched")


def _out_of_memory(state: RunState, event: ev.OutOfMemory) -> None:
    state.out_of_memory.append(event)
    _note(state, event, "out of memory", headline(event))


def _schedule_noted(state: RunState, event: ev.ScheduleNoted) -> None:
    state.schedule_notes.append(event.text)
    _note(state, event, "schedule", event.text)


def _run_ended(state: RunState, event: ev.RunEnded) -> None:
    state.ended = event
    state.paused = False
    state.pending.clear()
    _note(state, event, "run", f"ended with exit code {event.exit_code}")


def _note(state: RunState, event: ev.Event, kind: str, text: str) -> None:
    state.log.append(LogEntry(event.at, event.step, kind, text))
    state.log_count += 1
    if len(state.log) > LOG_LENGTH:
        del state.log[: LOG_LENGTH // 10]


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else old + _SMOOTHING * (new - old)


_CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.RunStarted: _run_started,
    ev.ModelsFound: _models_found,
    ev.DeviceFound: _device_found,
    ev.OptimizersFound: _optimizers_found,
    ev.Progress: _progress,
    ev.GradientsMeasured: _gradients_measured,
    ev.LedgerTaken: _ledger_taken,
    ev.SavedBytesMeasured: _saved_bytes,
    ev.GradientReachMeasured: _reach,
    ev.StepTraced: _step_traced,
    ev.ParametersClassified: _classified,
    ev.PhaseSampled: _phase_sampled,
    ev.DeviceSampled: _device_sampled,
    ev.CommandApplied: _applied,
    ev.CommandRejected: _rejected,
    ev.FreezeVerified: _verified,
    ev.PauseChanged: _pause_changed,
    ev.ProbeFailed: _probe_failed,
    ev.OutOfMemory: _out_of_memory,
    ev.ScheduleNoted: _schedule_noted,
    ev.RunEnded: _run_ended,
}
