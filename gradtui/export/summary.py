"""The closing summary of a run as JSON-ready data.

Schema 1. Bytes, seconds and counts; `null` wherever something is unknown, and in place of a number JSON has no word for
(NaN, infinity). `steps` counts the executed optimizer steps of all optimizers together, `micro_steps` outermost backward
calls. `state` is the letter of `gradtui.protocol.vocabulary.ParameterState`. A phase's `exact` says that every category was
measured, `peak_exact` that `bytes_peak` is the phase's peak and not only a lower bound. `saved_bytes` of a parameter is what
autograd keeps for backward in the operations of the module that owns it. `bytes_end` is null for a phase whose end was never
measured, one that did not occur included. Its categories count each storage once; with `other`
they add up to `total`, except that `offloaded` is no part of it where `offload_outside` is true: the models are on a device,
and what is offloaded on the host. `other_at_load` is what was in no category when the first forward began (imports, data
sets), `other_first_step` what came with the first step (buffers that MKL and oneDNN keep, late imports), `other_since` the rest
of `other`: Python's own objects, results that are still alive.
`checkpointed` has the modules with operations in checkpointed regions: bytes that backward computes again there (null if not
seen), and the inputs that a region keeps, under the innermost module that it is within.
`interventions` are the newest freezes and unfreezes that were applied, by whomever; older ones are counted in
`interventions_dropped`. `exit_code` is null while the run goes on.
"""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import Phase
from gradtui.state.run_state import PhaseRecord, RunState
from gradtui.state.selectors import totals, unexplained_growth, unexplained_parts

SCHEMA = 1


def summarise(state: RunState, *, dropped: int) -> dict[str, Any]:
    """The summary of a run; `dropped` counts the events that nobody drained in time."""
    started, ended = state.started, state.ended
    return {
        "schema": SCHEMA,
        "script": started.script if started else None,
        "arguments": list(started.arguments) if started else [],
        "exit_code": ended.exit_code if ended else None,
        "seconds": state.seconds,
        "device": started.device if started else None,
        "ledger": started.ledger if started else None,
        "torch": started.torch_version if started else None,
        "steps": sum(state.optimizer_steps),
        "micro_steps": state.micro_steps,
        "skipped_steps": state.skipped_steps,
        "models": _models(state),
        "optimizers": _optimizers(state),
        "phases": {phase.value: _phase(state, state.phases[phase]) for phase in Phase},
        "step_peak": _step_peak(state),
        "checkpointed": _checkpointed(state),
        "gradient_norm": _gradient_norm(state),
        "parameters": _parameters(state),
        "interventions": _interventions(state),
        "interventions_dropped": state.intervention_count - len(state.interventions),
        "findings": [],
        "cost": _cost(state, dropped),
    }


def write(summary: dict[str, Any], path: Path) -> None:
    """Write a summary to `path`, whole or not at all. Raises OSError."""
    name = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # The kernel applies the umask: asking for it would change it for a moment, under the script's own threads.
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(summary, stream, indent=1, allow_nan=False)
            stream.write("\n")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _step_peak(state: RunState) -> dict[str, Any] | None:
    step = state.traced
    if step is None:
        return None
    return {
        "step": step.step,
        "bytes": step.peak,
        "phase": step.peak_phase.value,
        "module": _module_path(state, step.peak_module),
        "holdings": [
            {
                "kind": holding.kind,
                "module": _module_path(state, holding.module),
                "bytes": holding.bytes,
                "tensors": holding.tensors,
            }
            for holding in step.holdings
        ],
    }


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


def _module_path(state: RunState, place: int) -> str | None:
    return state.tree.modules[place].path if place >= 0 else None


def _models(state: RunState) -> list[dict[str, Any]]:
    tree = state.tree
    rows = []
    for model in tree.models:
        sums = totals(tree, tree.modules[model.root])
        rows.append(
            {
                "name": model.name,
                "type": model.type_name,
                "parameters": sums.parameters,
                "trainable": sums.trainable if "-" not in tree.trainable else None,
            }
        )
    return rows


def _optimizers(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "type": optimizer.type_name,
            "parameters": len(optimizer.parameters) + optimizer.unknown_parameters,
            "groups": optimizer.groups,
            "steps": steps,
        }
        for optimizer, steps in zip(state.optimizers, state.optimizer_steps)
    ]


def _phase(state: RunState, record: PhaseRecord) -> dict[str, Any]:
    last = record.last
    at_load, _ = unexplained_parts(state, last.held) if last is not None else (None, None)
    first_step, since = unexplained_growth(state, last.held) if last is not None else (None, None)
    return {
        "seconds": record.seconds,
        "count": record.count,
        "bytes_end": asdict(last.held) if last is not None else None,
        "other_at_load": at_load,
        "other_first_step": first_step,
        "other_since": since,
        "bytes_peak": record.peak,
        "peak_exact": record.peak_exact if record.peak is not None else None,
        "exact": last.exact if last is not None else None,
    }


def _gradient_norm(state: RunState) -> dict[str, Any]:
    norms = state.norm_summary
    return {
        "since_step": norms.since_step,
        "first": _number(norms.first),
        "last": _number(norms.last),
        "min": norms.smallest,
        "max": norms.largest,
        "measured_steps": norms.measured_steps,
        "not_finite_steps": norms.not_finite_steps,
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
                "shape": list(parameter.shape),
                "dtype": parameter.dtype,
                "bytes": parameter.bytes,
                "trainable": None if flag == "-" else flag == "1",
                "state": None if letter == "-" else letter,
                "gradient_norm": _number(tree.norms[index]) if tree.norms is not None else None,
                "saved_bytes": tree.saved.by_module[parameter.module] if tree.saved is not None else None,
            }
        )
    return rows


def _interventions(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "step": event.step,
            "seconds": event.at,
            "text": event.text,
            "path": event.command.path,
            "trainable": event.command.trainable,
            "parameters": [state.tree.parameters[i].path for i in event.parameters if i < len(state.tree.parameters)],
        }
        for event in state.interventions
        if isinstance(event.command, SetTrainable)
    ]


def _cost(state: RunState, dropped: int) -> dict[str, Any]:
    cost = state.cost
    return {
        "us_per_step": cost.own_seconds * 1e6 / cost.steps if cost.steps else None,
        "share_of_step": cost.own_seconds / cost.step_seconds if cost.step_seconds else None,
        "setup_seconds": cost.setup_seconds,
        "dropped_events": dropped,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
