"""Make the summary of a run from its state, and write it to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from gradtui.protocol import run_summary as rs
from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import SetRowsTrainable, SetTrainable
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.events import CommandApplied, ReceiptTaken
from gradtui.protocol.json_objects import to_object
from gradtui.protocol.json_text import to_document
from gradtui.protocol.summary_changes import ExtendedOptimizer, Freezes, FrozenRows, Intervention, Receipt, Refused
from gradtui.protocol.summary_ending import RunError
from gradtui.protocol.summary_memory import PhaseSummary
from gradtui.protocol.vocabulary import Phase
from gradtui.records.export import bad_steps, changes, courses, gradients, memory, ranks, times
from gradtui.records.export.module_table import module_table
from gradtui.records.export.same_fields import taken
from gradtui.run.state.findings import Finding, by_gravity
from gradtui.run.state.memory.run_memory import phase_bound
from gradtui.run.state.model_records import MODE_WORDS, model_labels, model_records, reported_tree
from gradtui.run.state.parts.phase_record import PhaseRecord
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import has_trained, norm_steps_of, unexplained_growth, unexplained_parts
from gradtui.run.text.commands import command_text
from gradtui.run.text.ending import end_rows
from gradtui.run.text.freezes import checkpoint_lines
from gradtui.run.text.frontier import record_sentence
from gradtui.run.text.models import record_text
from gradtui.run.text.optimizers import steps_by_optimizer
from gradtui.run.text.problem_states import state_reason
from gradtui.run.text.report import report_lines, untrained_lines
from gradtui.run.text.return_policies import ended_lines
from gradtui.system.atomic_file import OWNER_ONLY, write_atomically

WHILE_IT_RUNS = ("table",)
"""What the file of a run that continues is written without."""
FOR_ITS_END = ("table", "modules", "parameters", "report")
"""What the closing lines do not need."""


def summarise(state: RunState, *, dropped: int, without: Collection[str] = ()) -> rs.RunSummary:
    """Return the summary of a run.

    Args:
        state: the run.
        dropped: the number of events that were not drained in time.
        without: the fields that are left empty: `table`, `modules`, `parameters`, `report`. In a large model they take long.
    """
    started, ended = state.started, state.ended
    of_models, of_optimizers, labels = _models(state), _optimizers(state), model_labels(state)
    phases = {phase.value: _phase(state, state.phases[phase], labels) for phase in Phase}
    present, state = state, replace(state, tree=reported_tree(state))
    made = rs.RunSummary(
        schema=rs.SCHEMA,
        script=started.script if started else None,
        arguments=started.arguments if started else (),
        exit_code=ended.exit_code if ended else None,
        child_cpu_seconds=ended.child_cpu_seconds if ended else None,
        seconds=state.seconds,
        device=started.device if started else None,
        ledger=started.ledger if started else None,
        torch=started.torch_version if started else None,
        steps=sum(state.optimizer_steps),
        iterations=state.iterations if state.iterations is not None else sum(state.optimizer_steps),
        micro_steps=state.micro_steps,
        skipped_steps=state.skipped_steps,
        models=of_models,
        optimizers=of_optimizers,
        phases=phases,
        memory=memory.step_memory(state),
        step_peak=memory.step_peak(state),
        device_memory=memory.device_memory(state),
        checkpointed=memory.checkpointed(state),
        living_graphs=memory.living_graphs(state),
        gradient_norm=gradients.gradient_norm(state),
        losses=courses.losses(state),
        gradient_norms=courses.gradient_norms(state),
        metrics=courses.metrics(state),
        bad_step=bad_steps.bad_step(state.bad_step) if state.bad_step is not None else None,
        spikes=tuple(map(bad_steps.spike, state.spikes)),
        spike_count=state.spike_count,
        modules=() if "modules" in without else gradients.modules(state),
        parameters=() if "parameters" in without else _parameters(state),
        buffers=tuple(taken(rs.Buffer, info) for info in state.tree.buffers),
        freezes=_freezes(state),
        interventions=tuple(
            _intervention(event, state.receipts.get(event.command.id)) for event in state.interventions
        ),
        forecasts=changes.forecasts(state),
        forecast_errors=changes.forecast_errors(state),
        interventions_dropped=state.intervention_count - len(state.interventions),
        returns=changes.returns(state),
        return_count=state.kept.return_count,
        refused=tuple(Refused(event.step, command_text(event.command), event.reason) for event in state.refused),
        out_of_memory=tuple(map(memory.failed_allocation, state.out_of_memory)),
        findings=tuple(map(finding_entry, by_gravity(state.findings))),
        problems={part: taken(rs.PartProblem, each) for part, each in state.problems.items()},
        unregistered=tuple(state.unregistered),
        unregistered_omitted=state.unregistered_omitted,
        cost=_cost(state, dropped),
        ranks=ranks.ranks(state.job),
        report=(),
        step_time=times.step_time(state),
        throughput=times.throughput(state),
        device_load=times.device_load(state),
        newest_step=state.step,
        steps_by_optimizer=steps_by_optimizer(state),
        error=_error(state),
        untrained=tuple(untrained_lines(state)) if ended is not None and not has_trained(state) else (),
        deviations=(*state.schedule_notes, *ended_lines(state)),
        checkpoints=tuple(checkpoint_lines(state)),
        table=None if "table" in without else module_table(state),
        changes=changes.changes(state),
        metrics_omitted=state.metrics.omitted,
        job=ranks.job(state.job),
        ending=tuple(end_rows(present)),
    )
    has_report = "report" not in without and (ended is not None or state.micro_steps > 0)
    return replace(made, report=tuple(report_lines(state, made))) if has_report else made


def _error(state: RunState) -> RunError | None:
    ended = state.ended
    if ended is None or (ended.error is None and not ended.exit_code):
        return None
    line = ended.uncaught.line if ended.uncaught is not None else None
    return RunError(ended.headline, ended.error, line.file if line else None, line.line if line else None)


def finding_entry(finding: Finding) -> rs.Finding:
    """Return a finding as the summary has it."""
    evidence = {
        name: gradients.number(value) if isinstance(value, float) else value for name, value in finding.evidence.items()
    }
    level, status = finding.level.value, finding.status.value
    return taken(rs.Finding, finding, level=level, status=status, evidence=evidence)


def write(summary: rs.RunSummary, path: Path) -> None:
    """Write a summary to `path`, atomically if it is a file, in place if it is a device or a pipe. Raises OSError."""
    if is_replaceable(path):
        write_anew(summary, path)
    else:
        path.write_bytes(_encoded(summary))


def write_anew(summary: rs.RunSummary, path: Path, replace: Callable[[Path, Path], None] = os.replace) -> None:
    """Write a summary atomically to a file that only its owner can read, and that `replace` renames to `path`.

    Raises OSError and what `replace` raises.
    """
    write_atomically(path.resolve(), lambda file: file.write(_encoded(summary)), mode=OWNER_ONLY, replace=replace)


def is_replaceable(path: Path) -> bool:
    """Return whether a new file may replace `path`: False for anything but a file (`/dev/stdout`, a pipe)."""
    return not os.path.exists(path) or os.path.isfile(path)


def _encoded(summary: rs.RunSummary) -> bytes:
    return f"{to_document(to_object(summary))}\n".encode()


def _models(state: RunState) -> tuple[rs.Model, ...]:
    labels = model_labels(state)
    return tuple(
        taken(
            rs.Model,
            record,
            type=record.type_name,
            measured_step=record.step,
            run_under=_run_under(record),
            backward=rs.Backward(record.stops, record.never_entered, record_sentence(state, record)),
            label=labels[record.number],
            in_words=record_text(record),
        )
        for record in model_records(state)
    )


def _run_under(record: ModelRecord) -> dict[str, rs.ElementCounts] | None:
    if not record.regimes:
        return None
    modes: dict[str, rs.ElementCounts] = {}
    for regime in record.regimes:
        mode = MODE_WORDS[regime.grad_mode]
        known = modes.get(mode, rs.ElementCounts(0, 0))
        modes[mode] = (
            replace(known, trainable=known.trainable + regime.parameters)
            if regime.trainable
            else replace(known, frozen=known.frozen + regime.parameters)
        )
    return modes


def _optimizers(state: RunState) -> tuple[rs.Optimizer, ...]:
    return tuple(
        taken(
            rs.Optimizer,
            optimizer,
            type=optimizer.type_name,
            parameters=len(optimizer.parameters) + optimizer.unknown_parameters,
            steps=steps,
            group_settings=_group_settings(state, index),
        )
        for index, (optimizer, steps) in enumerate(zip(state.optimizers, state.optimizer_steps))
    )


def _group_settings(state: RunState, optimizer: int) -> tuple[rs.GroupSettings, ...]:
    read = state.groups.optimizers if state.groups is not None else ()
    return tuple(
        rs.GroupSettings(
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            further=dict(settings.further),
            since_steps=state.groups_since[optimizer, group],
        )
        for group, settings in enumerate(read[optimizer] if optimizer < len(read) else ())
    )


def _phase(state: RunState, record: PhaseRecord, labels: Mapping[int, str]) -> PhaseSummary:
    last = record.last
    at_load, _ = unexplained_parts(state.held_since_load, last.held) if last is not None else (None, None)
    first_step, since = unexplained_growth(state, last.held) if last is not None else (None, None)
    bound = phase_bound(state, record) if record.peak is not None else None
    return PhaseSummary(
        seconds=record.seconds,
        device_seconds=record.device_seconds if record.device_steps else None,
        device_steps=record.device_steps,
        count=record.count,
        bytes_end=last.held if last is not None else None,
        bytes_end_step=last.step if last is not None else None,
        other_at_load=at_load,
        other_first_step=first_step,
        other_since=since,
        bytes_peak=record.peak,
        peak_step=record.peak_step if record.peak is not None else None,
        peak_exact=bound == "exact" if bound is not None else None,
        peak_models=tuple(labels[number] for number in record.peak_models if number in labels),
        exact=last.exact if last is not None else None,
        peak_bound=bound,
    )


def _parameters(state: RunState) -> tuple[rs.Parameter, ...]:
    return tuple(_parameter(state, index) for index in range(len(state.tree.parameters)))


def _parameter(state: RunState, index: int) -> rs.Parameter:
    tree = state.tree
    parameter, letter, flag = tree.parameters[index], tree.states[index], tree.trainable[index]
    steps = norm_steps_of(tree, range(index, index + 1))
    return rs.Parameter(
        path=parameter.path,
        names=parameter.names,
        same_storage=parameter.same_storage,
        shape=parameter.shape,
        local_count=parameter.local_count,
        dtype=parameter.dtype,
        bytes=parameter.bytes,
        trainable=None if flag == "-" else flag == "1",
        state=None if letter == "-" else letter,
        state_reason=state_reason(tree, index),
        gradient_norm=gradients.number(tree.norms[index]) if tree.norms is not None else None,
        gradient_norm_step=steps[0] if steps else None,
        gradient=gradients.figures(state, index),
        saved_bytes=tree.saved.by_module[parameter.module] if tree.saved is not None else None,
    )


def _cost(state: RunState, dropped: int) -> rs.Cost:
    cost = state.cost
    device_seconds = cost.own_device_seconds
    return rs.Cost(
        us_per_step=cost.own_seconds * 1e6 / cost.steps if cost.steps else None,
        device_us_per_step=device_seconds * 1e6 / cost.steps if device_seconds is not None and cost.steps else None,
        share_of_step=cost.share,
        steps_exempt_from_budget=cost.exempt_steps,
        share_of_other_steps=cost.share_of_others,
        budget=state.started.budget if state.started is not None else None,
        steps_within_budget=cost.paid_steps,
        share_within_budget=cost.paid_share if cost.step_seconds else None,
        setup_seconds=cost.setup_seconds,
        dropped_events=dropped,
        dropped_readings=cost.readings_late + cost.readings_without_room,
        steps_with_estimated_phases=0,
    )


def _freezes(state: RunState) -> Freezes:
    tree, found, extended = state.tree, state.tree.freezes, state.extended
    return Freezes(
        frozen=tuple(tree.parameters[index].path for index in found.frozen) if found else (),
        contending=tuple(tree.parameters[index].path for index in found.contending) if found else (),
        added_to_optimizers=tuple(
            ExtendedOptimizer(each.type_name, each.own, each.added)
            for each in (extended.optimizers if extended else ())
        ),
        trained_and_taken_out=extended.taken_out if extended else (),
        holding_statistics=tuple(tree.modules[index].path for index in found.holding) if found else (),
        rows=tuple(
            FrozenRows(tree.parameters[index].path, each.rows, each.frozen, each.count)
            for index, each in sorted(tree.frozen_rows.items())
        ),
    )


def _intervention(event: CommandApplied, receipt: ReceiptTaken | None) -> Intervention:
    command, words = event.command, to_words(event.command)
    return Intervention(
        step=event.step,
        seconds=event.at,
        text=event.text,
        command=words.pop("command"),
        fields=words,
        origin=command.origin or None,
        trainable=command.trainable if isinstance(command, (SetTrainable, SetRowsTrainable)) else None,
        skipped=event.skipped,
        parameters=tuple(path for changed in event.changed for path in changed.paths),
        receipt=_receipt(receipt) if receipt is not None else None,
    )


def _receipt(event: ReceiptTaken) -> Receipt:
    effect = event.effect or Effect()
    before, after, time = effect.before, effect.after, effect.time
    return Receipt(
        text=event.text,
        carried_out=event.held,
        peak_bytes=_pair(before, after, "peak"),
        total_bytes=_pair(before, after, "total"),
        activations_bytes=_pair(before, after, "activations"),
        seconds=(time.before, time.after, time.margin) if time is not None else None,
        joined=dict(effect.joined),
        other_changes=effect.others,
    )


def _pair(before: StepMemory | None, after: StepMemory | None, name: str) -> tuple[int, int] | None:
    one, other = (getattr(side, name, None) for side in (before, after))
    return None if one is None or other is None else (one, other)
