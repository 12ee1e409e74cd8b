"""The rows of a recording that its last event completes: parameters, ranks, findings, and changes with their receipts."""

from __future__ import annotations

from gradtui.protocol.effects import Effect
from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState
from gradtui.records.export.formats import tables
from gradtui.records.export.formats.tables import Row, Rows
from gradtui.run.state.changes.changes import Change, changes
from gradtui.run.state.findings import Finding, by_gravity
from gradtui.run.state.model_records import reported_tree
from gradtui.run.state.run_state import RunState
from gradtui.run.text import command_text, receipt_text, shape_text, verified_text

_NAMES = {state.value: name for state, name in STATE_NAMES.items() if state is not ParameterState.UNKNOWN}


def closing_rows(state: RunState) -> tuple[tuple[str, Rows], ...]:
    """Return those of a run as a whole, each part with its name."""
    return ("findings", _findings(state)), ("changes", _changes(state))


def _findings(state: RunState) -> Rows:
    for finding in by_gravity(state.findings):
        yield tables.FINDINGS, _finding(finding)


def _changes(state: RunState) -> Rows:
    for change in changes(state, len(state.interventions) + len(state.refused)):
        yield tables.CHANGES, _change(change)


def rank_rows(state: RunState) -> Rows:
    """Yield the ranks of a job, those that were restarted first."""
    for each in state.job.records if state.job is not None else ():
        yield (
            tables.RANKS,
            {
                "rank": each.rank,
                "generation": each.generation,
                "local_rank": each.local_rank,
                "host": each.host,
                "pid": each.pid,
                "joined_s": each.joined_at,
                "left_s": each.left_at,
                "steps": each.step,
                "micro_steps": each.micro_steps,
                "exit_code": each.ended.exit_code if each.ended is not None else None,
                "reason": each.left_reason or None,
            },
        )


def parameter_rows(state: RunState) -> Rows:
    """Yield the parameters of a process at its end."""
    tree = reported_tree(state)
    for index, info in enumerate(tree.parameters):
        flag = tree.trainable[index : index + 1] or "-"
        yield (
            tables.PARAMETERS,
            {
                "module": tree.modules[info.module].path if 0 <= info.module < len(tree.modules) else None,
                "parameter": info.path,
                "shape": shape_text(info.shape),
                "dtype": info.dtype,
                "elements": info.count,
                "parameter_bytes": info.bytes,
                "is_trainable": flag == "1" if flag != "-" else None,
                "state": _NAMES.get(tree.states[index : index + 1]),
                "gradient_norm": tree.norms[index] if tree.norms is not None else None,
            },
        )


def _finding(finding: Finding) -> Row:
    return {
        "rule": finding.rule,
        "level": finding.level.value,
        "status": finding.status.value,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "cleared_step": finding.cleared_step,
        "message": finding.message,
        "why": finding.why,
        "remedy": finding.remedy,
        "paths": ", ".join(finding.paths),
        "file": finding.file,
        "line": finding.line,
    }


def _change(change: Change) -> Row:
    effect = change.receipt.effect if change.receipt is not None else None
    before, after = (effect.before, effect.after) if effect is not None else (None, None)
    time = (effect or Effect()).time
    receipt = receipt_text(change.receipt, change.forecast) if change.receipt is not None else None
    return {
        "step": change.step,
        "time_s": change.at,
        "command": command_text(change.command),
        "origin": change.command.origin or None,
        "status": change.status.value,
        "text": change.text,
        "receipt": receipt,
        "verified": verified_text(change.verified) if change.verified is not None else None,
        "peak_before_bytes": before.peak if before is not None else None,
        "peak_after_bytes": after.peak if after is not None else None,
        "activations_before_bytes": before.activations if before is not None else None,
        "activations_after_bytes": after.activations if after is not None else None,
        "step_time_before_s": time.before if time is not None else None,
        "step_time_after_s": time.after if time is not None else None,
    }
