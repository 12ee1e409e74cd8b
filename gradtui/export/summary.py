"""The closing summary of a run as JSON-ready data. `docs/reference/summary.md` says what its entries mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gradtui.atomic_file import OWNER_ONLY, write_atomically
from gradtui.export import forecasts, gradients, optimizers
from gradtui.export.device_memory import device_memory
from gradtui.export.step_memory import step_memory
from gradtui.protocol.codec import to_words
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.effects import Effect
from gradtui.protocol.events import OutOfMemory, ReceiptTaken
from gradtui.protocol.json_values import to_document
from gradtui.protocol.vocabulary import Phase
from gradtui.state.findings import Finding, by_gravity
from gradtui.state.model_records import MODE_WORDS, model_labels, model_records, reported_tree
from gradtui.state.run_memory import is_peak_exact
from gradtui.state.run_state import ModelRecord, PhaseRecord, RunState
from gradtui.state.selectors import norm_steps_of, unexplained_growth, unexplained_parts
from gradtui.text import command_text, nonfinite_text, record_sentence, report_lines, state_reason

SCHEMA = 1


def summarise(state: RunState, *, dropped: int) -> dict[str, Any]:
    """Return the summary of a run; `dropped` counts the events that were not drained in time."""
    started, ended = state.started, state.ended
    models, owners = _models(state), _optimizers(state)
    phases = {phase.value: _phase(state, state.phases[phase]) for phase in Phase}
    state = replace(state, tree=reported_tree(state))
    return {
        "schema": SCHEMA,
        "script": started.script if started else None,
        "arguments": list(started.arguments) if started else [],
        "exit_code": ended.exit_code if ended else None,
        "child_cpu_seconds": ended.child_cpu_seconds if ended else None,
        "seconds": state.seconds,
        "device": started.device if started else None,
        "ledger": started.ledger if started else None,
        "torch": started.torch_version if started else None,
        "steps": sum(state.optimizer_steps),
        "iterations": state.iterations if state.iterations is not None else sum(state.optimizer_steps),
        "micro_steps": state.micro_steps,
        "skipped_steps": state.skipped_steps,
        "models": models,
        "optimizers": owners,
        "phases": phases,
        "memory": step_memory(state),
        "step_peak": _step_peak(state),
        "device_memory": device_memory(state),
        "checkpointed": _checkpointed(state),
        "living_graphs": _living_graphs(state),
        "gradient_norm": gradients.gradient_norm(state),
        "losses": optimizers.losses(state),
        "gradient_norms": optimizers.gradient_norms(state),
        "bad_step": _bad_step(state),
        "modules": gradients.modules(state),
        "parameters": _parameters(state),
        "buffers": [_entry(info, "path", "shape", "dtype", "bytes", "persistent") for info in state.tree.buffers],
        "freezes": _freezes(state),
        "interventions": _interventions(state),
        "forecasts": list(forecasts.forecasts(state)),
        "forecast_errors": forecasts.errors(state),
        "interventions_dropped": state.intervention_count - len(state.interventions),
        "refused": [
            {"step": event.step, "command": command_text(event.command), "reason": event.reason}
            for event in state.refused
        ],
        "out_of_memory": [_out_of_memory(event) for event in state.out_of_memory],
        "findings": [finding_entry(finding) for finding in by_gravity(state.findings)],
        "problems": {part: asdict(problem) for part, problem in state.problems.items()},
        "unregistered": [asdict(module) for module in state.unregistered],
        "unregistered_omitted": state.unregistered_omitted,
        "cost": _cost(state, dropped),
        "ranks": _ranks(state),
        "report": report_lines(state) if ended is not None or state.micro_steps else [],
    }


def _ranks(state: RunState) -> list[dict[str, Any]]:
    if state.job is None:
        return []
    return [
        {
            "rank": each.rank,
            "local_rank": each.local_rank,
            "host": each.host,
            "pid": each.pid,
            "generation": each.generation,
            "steps": each.step,
            "micro_steps": each.micro_steps,
            "exit_code": each.exit_code,
            "left": each.left_reason or None,
        }
        for each in state.job.records
    ]


def finding_entry(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON-ready data."""
    return {
        "rule": finding.rule,
        "level": finding.level.value,
        "status": finding.status.value,
        "message": finding.message,
        "why": finding.why,
        "paths": list(finding.paths),
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "cleared_step": finding.cleared_step,
        "evidence": {
            name: gradients.number(value) if isinstance(value, float) else value
            for name, value in finding.evidence.items()
        },
        "remedy": finding.remedy,
        "command": finding.command,
        "explains": list(finding.explains),
        "file": finding.file,
        "line": finding.line,
    }


def write(summary: dict[str, Any], path: Path) -> None:
    """Write a summary to `path`, atomically if it is a file, in place if it is a device or a pipe. Raises OSError."""
    if is_replaceable(path):
        write_anew(summary, path)
    else:
        path.write_bytes(_encoded(summary))


def write_anew(summary: dict[str, Any], path: Path, replace: Callable[[Path, Path], None] = os.replace) -> None:
    """Write a summary atomically to a file that only its owner can read, and that `replace` renames to `path`.

    Raises OSError and what `replace` raises.
    """
    write_atomically(path.resolve(), lambda file: file.write(_encoded(summary)), mode=OWNER_ONLY, replace=replace)


def is_replaceable(path: Path) -> bool:
    """Return whether a new file may replace `path`: False for anything but a file (`/dev/stdout`, a pipe)."""
    return not path.exists() or path.is_file()


def _encoded(summary: dict[str, Any]) -> bytes:
    return f"{to_document(summary)}\n".encode()


def _step_peak(state: RunState) -> dict[str, Any] | None:
    step = state.step_profile
    if step is None:
        return None
    return {
        "step": step.step,
        "bytes": step.peak,
        "phase": step.peak_phase.value,
        "module": _module_path(state, step.peak_module),
        "holdings": [asdict(holding) | {"module": _module_path(state, holding.module)} for holding in step.holdings],
    }


def _living_graphs(state: RunState) -> dict[str, Any] | None:
    graphs = state.graphs
    if graphs is None or not graphs.forwards:
        return None
    return _entry(graphs, "step", "forwards", "at_least", "since_step", "bytes")


def _checkpointed(state: RunState) -> list[dict[str, Any]]:
    saved = state.tree.saved
    if saved is None or not saved.recomputed:
        return []
    rows = zip(state.tree.modules, saved.recomputed, saved.region_inputs)
    return [
        {"module": module.path, "recomputed_bytes": again, "kept_bytes": inputs}
        for module, again, inputs in rows
        if again != 0 or inputs
    ]


def _entry(source: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Return attributes of an object as JSON-ready data, by their names; `renamed` has other keys for some of them."""
    entry = {key: getattr(source, name) for key, name in [*zip(names, names), *renamed.items()]}
    return {
        key: list(value) if isinstance(value, tuple) else value.value if isinstance(value, Phase) else value
        for key, value in entry.items()
    }


def _module_path(state: RunState, index: int) -> str | None:
    return state.tree.modules[index].path if index >= 0 else None


def _models(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            **_entry(
                record, "name", "current", "evaluated_only", "part_of", "parameters", "trainable", type="type_name"
            ),
            **_entry(record, "gradient_bytes", "activation_bytes", "bucket_bytes", measured_step="step"),
            "run_under": _run_under(record),
            "backward": {
                **_entry(record, stops_at="stops", never_enters="never_entered"),
                "in_words": record_sentence(state, record),
            },
        }
        for record in model_records(state)
    ]


def _run_under(record: ModelRecord) -> dict[str, dict[str, int]] | None:
    if not record.regimes:
        return None
    modes: dict[str, dict[str, int]] = {}
    for regime in record.regimes:
        counts = modes.setdefault(MODE_WORDS[regime.grad_mode], {"trainable": 0, "frozen": 0})
        counts["trainable" if regime.trainable else "frozen"] += regime.parameters
    return modes


def _optimizers(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            **_entry(optimizer, "groups", "freed", "sharing", type="type_name"),
            "parameters": len(optimizer.parameters) + optimizer.unknown_parameters,
            "steps": steps,
            "group_settings": _group_settings(state, index),
        }
        for index, (optimizer, steps) in enumerate(zip(state.optimizers, state.optimizer_steps))
    ]


def _group_settings(state: RunState, optimizer: int) -> list[dict[str, Any]]:
    read = state.groups.optimizers if state.groups is not None else ()
    return [
        {
            "lr": settings.learning_rate,
            "weight_decay": settings.weight_decay,
            **dict(settings.further),
            "since_steps": list(state.groups_since[optimizer, group]),
        }
        for group, settings in enumerate(read[optimizer] if optimizer < len(read) else ())
    ]


def _phase(state: RunState, record: PhaseRecord) -> dict[str, Any]:
    last, labels = record.last, model_labels(state)
    at_load, _ = unexplained_parts(state, last.held) if last is not None else (None, None)
    first_step, since = unexplained_growth(state, last.held) if last is not None else (None, None)
    return {
        "seconds": record.seconds,
        "device_seconds": record.device_seconds if record.device_steps else None,
        "device_steps": record.device_steps,
        "count": record.count,
        "bytes_end": asdict(last.held) if last is not None else None,
        "bytes_end_step": last.step if last is not None else None,
        "other_at_load": at_load,
        "other_first_step": first_step,
        "other_since": since,
        "bytes_peak": record.peak,
        "peak_step": record.peak_step if record.peak is not None else None,
        "peak_exact": is_peak_exact(state, record) if record.peak is not None else None,
        "peak_models": [labels[number] for number in record.peak_models if number in labels],
        "exact": last.exact if last is not None else None,
    }


def _parameters(state: RunState) -> list[dict[str, Any]]:
    tree = state.tree
    rows = []
    for index, parameter in enumerate(tree.parameters):
        letter, flag = tree.states[index], tree.trainable[index]
        rows.append(
            {
                "path": parameter.path,
                "names": list(parameter.names),
                "same_storage": list(parameter.same_storage),
                "shape": list(parameter.shape),
                "local_count": parameter.local_count,
                "dtype": parameter.dtype,
                "bytes": parameter.bytes,
                "trainable": None if flag == "-" else flag == "1",
                "state": None if letter == "-" else letter,
                "state_reason": state_reason(tree, index),
                "gradient_norm": gradients.number(tree.norms[index]) if tree.norms is not None else None,
                "gradient_norm_step": steps[0] if (steps := norm_steps_of(tree, range(index, index + 1))) else None,
                "gradient": gradients.figures(state, index),
                "saved_bytes": tree.saved.by_module[parameter.module] if tree.saved is not None else None,
            }
        )
    return rows


def _out_of_memory(event: OutOfMemory) -> dict[str, Any]:
    return {
        **_entry(event, "number", "step", "device", "message", "phase", "module", "whole", "file"),
        **_entry(event, seconds="at", requested_bytes="requested"),
        "bytes": {**dict(event.categories), "total": event.total} if event.categories else None,
        "largest": [asdict(storage) for storage in event.largest],
    }


def _cost(state: RunState, dropped: int) -> dict[str, Any]:
    cost = state.cost
    device_seconds = cost.own_device_seconds
    return {
        "us_per_step": cost.own_seconds * 1e6 / cost.steps if cost.steps else None,
        "device_us_per_step": device_seconds * 1e6 / cost.steps if device_seconds is not None and cost.steps else None,
        "share_of_step": cost.share,
        "steps_exempt_from_budget": cost.exempt_steps,
        "share_of_other_steps": cost.share_of_others,
        "budget": state.started.budget if state.started is not None else None,
        "steps_within_budget": cost.paid_steps,
        "share_within_budget": cost.paid_share if cost.step_seconds else None,
        "setup_seconds": cost.setup_seconds,
        "dropped_events": dropped,
        "dropped_readings": cost.readings_late + cost.readings_without_room,
        "steps_with_estimated_phases": 0,
    }


def _bad_step(state: RunState) -> dict[str, Any] | None:
    event = state.bad_step
    if event is None:
        return None
    return {
        **_entry(event, "step", "value", "phase", "module", "until", "is_input", "parameter", "others", "exact"),
        **_entry(event, "operation"),
        **_entry(event, seconds="at", last_finite_step="last_finite"),
        "earliest_step": event.earliest or event.step,
        "in_words": nonfinite_text(event),
    }


def _freezes(state: RunState) -> dict[str, Any]:
    tree, found = state.tree, state.tree.freezes
    return {
        "frozen": [tree.parameters[index].path for index in found.frozen] if found else [],
        "contending": [tree.parameters[index].path for index in found.contending] if found else [],
        "added_to_optimizers": [
            {"optimizer": optimizer.type_name, "own": optimizer.own, "added": list(optimizer.added)}
            for optimizer in (state.extended.optimizers if state.extended else ())
        ],
        "trained_and_taken_out": list(state.extended.taken_out) if state.extended else [],
        "holding_statistics": [tree.modules[index].path for index in found.holding] if found else [],
    }


def _interventions(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "step": event.step,
            "seconds": event.at,
            "text": event.text,
            **to_words(event.command),
            "origin": event.command.origin or None,
            "trainable": event.command.trainable if isinstance(event.command, SetTrainable) else None,
            "skipped": event.skipped,
            "parameters": [path for changed in event.changed for path in changed.paths],
            "receipt": _receipt(state.receipts.get(event.command.id)),
        }
        for event in state.interventions
    ]


def _receipt(event: ReceiptTaken | None) -> dict[str, Any] | None:
    if event is None:
        return None
    effect = event.effect or Effect()
    sides = [side and asdict(side) for side in (effect.before, effect.after)]
    sizes = {name: [side and side[name] for side in sides] for name in ("peak", "total", "activations")}
    return {
        "text": event.text,
        "carried_out": event.held,
        **{f"{name}_bytes": None if None in pair else pair for name, pair in sizes.items()},
        "seconds": [effect.time.before, effect.time.after, effect.time.margin] if effect.time is not None else None,
        "joined": dict(effect.joined),
        "other_changes": effect.others,
    }
