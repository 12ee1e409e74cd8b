"""The reducer: one small function per event that updates `RunState`. Pure; it reads no clock and touches no torch object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from gradtui.protocol import commands
from gradtui.protocol import events as ev
from gradtui.run.reducer import (
    evidence,
    job,
    kept_states,
    measured,
    progress,
    results,
    resume,
    script_calls,
    step_figures,
    throughput,
    tries,
)
from gradtui.run.reducer.kept_forecasts import keep_forecast
from gradtui.run.reducer.metrics import metrics_logged
from gradtui.run.reducer.relisting import keep_records, relisted, relisted_history, relisted_optimizer, relisted_trace
from gradtui.run.state.optimizers.optimizer_turns import main_steps
from gradtui.run.state.parts.curves import StepMemoryCurves
from gradtui.run.state.parts.falling_rates import FallingRate
from gradtui.run.state.parts.growth import GrowthWatch
from gradtui.run.state.run_state import ModelChange, RunState
from gradtui.run.state.selectors import is_classified, subtree
from gradtui.run.state.series import Series
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import (
    checkpoint_lines,
    command_text,
    contended_text,
    oom_headline,
    plural,
    record_text,
    unregistered_lines,
)

REFUSALS_KEPT = 64
MODEL_CHANGES_KEPT = 64

E = TypeVar("E", bound=ev.Event)


def apply(state: RunState, event: ev.Event) -> None:
    """Update the state with one event."""
    state.version += 1
    state.seconds = max(state.seconds, event.at)
    # Only `Progress` brings the micro-steps and rates of the same step.
    if isinstance(event, ev.Progress):
        # The step may be lower than before: a device may report later that a step was skipped.
        state.step = event.step
    elif isinstance(event, ev.RunEnded):
        state.step = max(state.step, event.step)
    if state.job is not None and state.job.own is not None:
        job.own_event(state, event)
    change = _CHANGES.get(type(event))
    is_of_another_listing = event.listing not in (None, state.tree.listing) and not isinstance(event, ev.ModelsFound)
    if change is not None and not is_of_another_listing:
        change(state, event)


def _call_order_measured(state: RunState, event: ev.CallOrderMeasured) -> None:
    state.calls = event


def _run_started(state: RunState, event: ev.RunStarted) -> None:
    state.started = event
    state.note(event, "run", f"started {event.script}")


def _process_group_found(state: RunState, event: ev.ProcessGroupFound) -> None:
    state.process_group = event


def _torch_imported(state: RunState, event: ev.TorchImported) -> None:
    if state.started is not None:
        known = replace(state.started, device=event.device, ledger=event.ledger)
        state.started = replace(known, torch_version=event.version)


def _models_found(state: RunState, event: ev.ModelsFound) -> None:
    before = state.tree
    keep_records(state, event)
    state.tree = relisted(before, event)
    state.history = relisted_history(state.history, event)
    state.step_profile = relisted_trace(before, state.step_profile, event) if state.step_profile is not None else None
    state.profiled_under = None
    state.operations, state.forecasts = None, {}
    new = {former: index for index, former in enumerate(event.former_parameters) if former >= 0}
    state.interventions = [
        replace(each, parameters=tuple(new[index] for index in each.parameters if index in new))
        for each in state.interventions
    ]
    state.optimizers = tuple(relisted_optimizer(optimizer, new) for optimizer in state.optimizers)
    step_figures.name_optimizers(state)
    replaces = not _still_trains(before, event)
    if event.step > 0:
        _note_change(state, event, before, replaces)
    if replaces:
        if is_classified(before):
            state.trained_tree = before
        if state.norm_summary.measured_steps:
            summary = state.norm_summary
            summary.of_earlier_models, summary.replaced_at = True, event.step
            summary.steps_when_replaced = main_steps(state) if state.main_optimizer != -1 else event.step
    _note_gone(state, event, before)
    names = ", ".join(model.type_name for model in event.models)
    state.note(event, "model", f"found {names} ({plural(len(event.parameters), 'tensor')})")


def _note_change(state: RunState, event: ev.ModelsFound, before: TreeState, replaces: bool) -> None:
    known = {model.number for model in before.models}
    new = dict.fromkeys(model.type_name for model in event.models if model.number not in known)
    if new or replaces:
        state.model_changes.append(ModelChange(event.step, ", ".join(new), replaces))
        if replaces:
            state.changed_after = max(state.changed_after, event.step)
        del state.model_changes[:-MODEL_CHANGES_KEPT]


def _still_trains(before: TreeState, event: ev.ModelsFound) -> bool:
    """Return whether the new list contains a model that is known to have had a gradient."""
    listed = {model.number for model in event.models}
    return before.norms is not None and any(
        before.norms[index] is not None
        for model in before.models
        if model.number in listed
        for index in subtree(before.modules[model.root])
    )


def _note_gone(state: RunState, event: ev.ModelsFound, before: TreeState) -> None:
    gone = {model.number for model in before.models} - {model.number for model in event.models}
    for record in [state.models[number] for number in sorted(gone) if number in state.models]:
        if record.part_of is not None and not record.has_trained:
            state.note(event, "model", f"{record.name} is part of {record.part_of} now")
        elif record.step is not None:
            state.note(event, "model", f"{record.name} is no longer used: {record_text(record)}")


def _device_found(state: RunState, event: ev.DeviceFound) -> None:
    if state.started is not None:
        state.started = replace(state.started, device=event.device, ledger=event.ledger)
    # Totals of two allocators cannot be compared: measurements of the former device are no longer valid.
    for record in state.phases.values():
        record.last, record.peak, record.peak_bound, record.totals = None, None, "exact", Series()
        record.peak_step, record.peak_models = 0, ()
        record.device_seconds, record.device_steps = 0.0, 0
    state.step_memory = StepMemoryCurves()
    state.growth, state.step_profile, state.operations = GrowthWatch(), None, None
    state.held_since_load = state.unexplained_first = None


def _command_applied(state: RunState, event: ev.CommandApplied) -> None:
    state.pending.pop(event.command.id, None)
    if isinstance(event.command, commands.Intervention):
        keep_forecast(state, event)
        state.changed_after = max(state.changed_after, event.step)
        state.interventions.append(event)
        state.intervention_count += 1
        if len(state.interventions) > results.INTERVENTIONS_KEPT:
            del state.interventions[0]
    if isinstance(event.command, commands.FollowMicroSteps):
        state.micro_norms.on = event.command.on
    if isinstance(event.command, commands.TraceGradient):
        state.tree.followed.add(event.command.path)
    if isinstance(event.command, commands.PauseAtBadStep):
        state.pauses_at_bad_step = event.command.on
    _follow_holds(state, event.command)
    if isinstance(event.command, (commands.TraceStep, commands.TraceGradient, commands.Watch)):
        # A separate event carries the result.
        return
    if isinstance(event.command, (commands.Pause, commands.Resume, commands.RunSteps, commands.RunTo)):
        # A separate event (`PauseChanged`) says that the run holds or continues.
        state.single_steps = isinstance(event.command, commands.RunSteps)
        state.runs_to = event.command.step if isinstance(event.command, commands.RunTo) else None
        return
    state.note(event, "applied", event.text)


def _follow_holds(state: RunState, command: commands.Command) -> None:
    """Note the breakpoints that are set, and a paused run that continues for one step only."""
    if isinstance(command, commands.SetBreakpoint):
        state.breakpoints[command.id] = command
    elif isinstance(command, commands.ClearBreakpoint):
        state.breakpoints.pop(command.breakpoint, None)
    elif isinstance(command, commands.TraceStep):
        state.single_steps |= state.paused and command.runs_step


def _command_rejected(state: RunState, event: ev.CommandRejected) -> None:
    state.pending.pop(event.command.id, None)
    state.refused.append(event)
    del state.refused[:-REFUSALS_KEPT]
    state.note(event, "rejected", f"cannot {command_text(event.command)}: {event.reason}")


def _checkpointing_changed(state: RunState, event: ev.CheckpointingChanged) -> None:
    state.tree.checkpointed = frozenset(event.modules)


def _groups_read(state: RunState, event: ev.GroupsRead) -> None:
    before = state.groups.optimizers if state.groups is not None else ()
    changed = (event.step if event.before is None else event.before + 1, event.step)
    since = {}
    for index, groups in enumerate(before):
        if groups and all(group.learning_rate == 0 for group in groups):
            first = max(state.groups_since[index, group][1] for group in range(len(groups)))
            last = event.step - 1 if event.before is None else event.before
            longest = state.without_rate.get(index, (1, 0))
            state.without_rate[index] = max(longest, (first, last), key=lambda steps: steps[1] - steps[0])
    for index, groups in enumerate(event.optimizers):
        state.falling_rates.setdefault(index, FallingRate()).take(groups, event.step)
        for group, settings in enumerate(groups):
            is_same = index < len(before) and group < len(before[index]) and before[index][group] == settings
            since[index, group] = state.groups_since[index, group] if is_same else changed
            old = before[index][group].learning_rate if index < len(before) and group < len(before[index]) else None
            if old is None or (settings.learning_rate is not None and settings.learning_rate > old):
                state.rates_rose[index, group] = event.step
    if state.groups is not None:
        state.rate_jumps.take(state.groups, event)
    state.groups, state.groups_since = event, since


def _freeze_state_changed(state: RunState, event: ev.FreezeStateChanged) -> None:
    state.tree.freezes = event if event.frozen or event.holding else None


def _frozen_rows_changed(state: RunState, event: ev.FrozenRowsChanged) -> None:
    state.tree.frozen_rows = {each.parameter: each for each in event.parameters}


def _optimizers_extended(state: RunState, event: ev.OptimizersExtended) -> None:
    said = checkpoint_lines(state)
    state.extended = event if event.optimizers or event.taken_out else None
    for line in checkpoint_lines(state):
        if line not in said:
            state.note(event, "checkpoint", line)


def _pause_changed(state: RunState, event: ev.PauseChanged) -> None:
    if event.paused or not state.paused:
        state.runs_to = None
    state.paused, state.pause_reason, state.held_step = event.paused, event.reason, event.held_step
    for number in event.breakpoints:
        state.breakpoints.pop(number, None)
    if event.paused or not state.single_steps:
        where = f" before the step of {event.held_step.name}" if event.held_step is not None else ""
        why = where + (f": {event.reason}" if event.reason else "")
        state.note(event, "run", f"paused{why}" if event.paused else "running")
    if event.paused:
        state.single_steps = False


def _probe_failed(state: RunState, event: ev.ProbeFailed) -> None:
    is_new = event.part not in state.problems
    state.note_problem(event.part, event.error)
    if not (is_new or event.disabled):
        return
    ending = "; its further failures are not reported" if event.disabled else ""
    state.note(event, "probe", f"{event.part} failed: {event.error}{ending}; training was not touched")


def _out_of_memory(state: RunState, event: ev.OutOfMemory) -> None:
    state.out_of_memory.append(event)
    state.note(event, "out of memory", oom_headline(event))


def _schedule_noted(state: RunState, event: ev.ScheduleNoted) -> None:
    state.schedule_notes.append(event.text)
    state.schedule_failed |= event.failed
    state.note(event, "schedule", event.text)


def _unregistered_found(state: RunState, event: ev.UnregisteredFound) -> None:
    before = {*unregistered_lines(state.unregistered, state.unregistered_omitted)}
    state.unregistered, state.unregistered_omitted = event.modules, event.more
    for line in unregistered_lines(event.modules, event.more):
        if line not in before:
            state.note(event, "model", line)


def _checkpoint_alive(state: RunState, event: ev.CheckpointAlive) -> None:
    state.checkpoint = event


def _optimizer_state_unused(state: RunState, event: ev.OptimizerStateUnused) -> None:
    state.unused_state = event


def _input_gradient_unused(state: RunState, event: ev.InputGradientUnused) -> None:
    state.unread_inputs, state.unread_input_steps = event, state.unread_input_steps + 1


def _run_ended(state: RunState, event: ev.RunEnded) -> None:
    state.ended = event
    state.paused = False
    state.pending.clear()
    state.note(event, "run", f"ended with exit code {event.exit_code}")


_CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    **script_calls.CHANGES,
    **evidence.CHANGES,
    **throughput.CHANGES,
    **resume.CHANGES,
    **tries.CHANGES,
    ev.RunStarted: _run_started,
    ev.TorchImported: _torch_imported,
    ev.ModelsFound: _models_found,
    ev.DeviceFound: _device_found,
    ev.OptimizersFound: step_figures.optimizers_found,
    ev.Progress: progress.progressed,
    ev.UnregisteredFound: _unregistered_found,
    ev.CheckpointAlive: _checkpoint_alive,
    ev.OptimizerStateUnused: _optimizer_state_unused,
    ev.InputGradientUnused: _input_gradient_unused,
    ev.WeightsUntied: lambda state, event: state.untied.append(event),
    ev.GradientsMeasured: measured.gradients_measured,
    ev.StepsMeasured: step_figures.steps_measured,
    ev.StepMemoryMeasured: step_figures.step_memory_measured,
    ev.MetricsLogged: metrics_logged,
    ev.PhasePeakMeasured: step_figures.phase_peak_measured,
    ev.MemorySpikeFound: step_figures.memory_spike_found,
    ev.SpikeFound: measured.spike_found,
    ev.SpikeSettled: measured.spike_settled,
    ev.NonFiniteFound: measured.non_finite_found,
    ev.NonFiniteSettled: measured.non_finite_settled,
    ev.GradientFiguresMeasured: measured.gradient_figures_measured,
    ev.MicroStepMeasured: lambda state, event: state.micro_norms.take(event),
    ev.GradientHistogramsMeasured: measured.gradient_histograms_measured,
    ev.MemoryMeasured: measured.memory_measured,
    ev.DeviceTimesMeasured: measured.device_times_measured,
    ev.StepTimesMeasured: measured.step_times_measured,
    ev.OperationsCounted: measured.operations_counted,
    ev.GraphsAlive: measured.graphs_alive,
    ev.CallOrderMeasured: _call_order_measured,
    ev.ModuleTimesMeasured: measured.module_times_measured,
    ev.SavedBytesMeasured: measured.saved_bytes_measured,
    ev.GradientFlowMeasured: measured.gradient_flow_measured,
    ev.StepMemoryProfiled: measured.step_memory_profiled,
    ev.OperationsRecorded: measured.operations_recorded,
    ev.ForecastMade: measured.forecast_made,
    ev.GradientPathFound: measured.gradient_path_found,
    ev.OptimizerStateRead: measured.optimizer_state_read,
    ev.ParametersClassified: measured.parameters_classified,
    ev.PhaseSampled: measured.phase_sampled,
    ev.DeviceSampled: measured.device_sampled,
    ev.CommandApplied: _command_applied,
    ev.CommandRejected: _command_rejected,
    ev.FreezeVerified: results.freeze_verified,
    ev.FreezeStateChanged: _freeze_state_changed,
    ev.FrozenRowsChanged: _frozen_rows_changed,
    ev.FreezeOverridden: lambda state, event: state.note(event, "contending", contended_text(event)),
    ev.OptimizersExtended: _optimizers_extended,
    ev.CheckpointingChanged: _checkpointing_changed,
    ev.CodeCompiled: measured.code_compiled,
    ev.GroupsRead: _groups_read,
    ev.ReceiptTaken: results.receipt_taken,
    ev.PauseChanged: _pause_changed,
    ev.ProbeFailed: _probe_failed,
    ev.OutOfMemory: _out_of_memory,
    ev.ScheduleNoted: _schedule_noted,
    ev.StateKept: kept_states.state_kept,
    ev.ReturnedToState: kept_states.returned_to_state,
    ev.StateForgotten: kept_states.state_forgotten,
    ev.ReturnsEnded: kept_states.returns_ended,
    ev.StateRenamed: kept_states.state_renamed,
    ev.CopyProgress: kept_states.copy_progress,
    ev.EventsEnded: RunState.lose_sight,
    ev.RulesRun: lambda state, event: None,  # noqa: ARG005 - for the viewer
    ev.ProcessGroupFound: _process_group_found,
    ev.ProposalAnswered: lambda state, event: None,  # noqa: ARG005 - for the viewer of the job
    ev.ReplicasMeasured: lambda state, event: None,  # noqa: ARG005 - for the viewer of the job
    ev.RankStateTaken: lambda state, event: None,  # noqa: ARG005 - for the viewer of the job
    ev.RankJoined: job.rank_joined,
    ev.RankLeft: job.rank_left,
    ev.RanksHeard: job.ranks_heard,
    ev.RanksFailed: job.ranks_failed,
    ev.CommandProposed: job.command_proposed,
    ev.ProposalClosed: job.proposal_closed,
    ev.RankEvent: lambda state, event: job.rank_event(state, event, apply),
    ev.RunEnded: _run_ended,
}
