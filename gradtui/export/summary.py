"""The closing summary of a run as JSON-ready data.

Schema 1. Values are bytes, seconds and counts. `null` stands for an unknown value, and for a number that JSON cannot represent
(NaN, infinity).

Steps. `steps` counts the executed optimizer steps of all optimizers together, `micro_steps` the outermost backward calls. A
step that a loss scaler skips counts in `skipped_steps`. Within a fused optimizer on a CUDA device such a step counts as
executed until the device has answered; the next step then gets its number. `dropped_readings` counts steps and micro-steps that
were not measured because a device had not finished the readings before or had no memory left for them.
`steps_with_estimated_phases` is 0: gradtui times the phases of every step. `steps_exempt_from_budget` counts steps that were
sampled regardless of the budget (the first ones, and those after a change); `share_of_other_steps` is the share of the time of
the other steps that measuring took, null where there are none.

Parameters. `state` is the letter of `gradtui.protocol.vocabulary.ParameterState`, null while it is unknown. `state_reason` says
in words why the parameter is in that state (why backward does not reach it, what changes it while it is frozen, why its state
is unknown); it is null where `state` needs no explanation. `same_storage` lists the paths of other parameters that are
different objects over the same memory: an optimizer that has several of them updates that memory once for each. `local_count`
is the number of elements that this process holds of a tensor spread over several processes, and `gradient_norm` covers these
elements; it is null for any other tensor. `gradient` has the statistics of the gradient last measured beyond its norm (see
`gradtui.protocol.vocabulary.GradientStats`). For a module and for the whole run it combines the parameters that train:
`tensors` of them out of `of` have statistics, each from the last step that measured it (`first_step` to `last_step`; see
`gradtui.state.aggregated_stats`).

Gradient norms. `gradient_norm` is the norm of the gradients as the optimizer applied them. Not every step is measured: `first`,
`last`, `min` and `max` are of `measured_steps` out of `of_steps` executed steps since `since_step`, and each states its step
(`first_step` and so on). `unconfirmed_steps` counts the measured steps of a script without an optimizer that cleared its
gradients by itself: gradtui read them when backward ended, and the script may have changed them before its update.
`gradient_norm_step` is the step at which a parameter's norm was read, `gradient_norm_steps` the first and the last such step of
a module; `gradient` of the same row may be of another step, which it states. `micro_steps` of `gradient_norm` has the norm
accumulated after each micro-step of the last step, before clipping, if the user follows micro-steps.

Phases. `seconds` is host time over the whole run. On a device it is the time that the host took to launch operations and to
wait for the device. `device_seconds` is device time in the `device_steps` sampled steps that were timed on the CUDA device that
holds most of the models, null if no step was timed: the time between two timing events on its current stream, which includes
the time that the stream was idle and excludes gradtui's own operations. `us_per_step` of `cost` counts host time, and device
time where that is longer for the same operations; `device_us_per_step` is the device time of gradtui's own operations alone,
null where none was timed. `bytes_end` is null for a phase whose end was never measured, which includes a phase that did not
occur. Its categories count each storage once. Together with `other` they add up to `total`, except that `offloaded` is no part
of it where `offload_outside` is true: then the models are on a device, and the offloaded tensors on the host. `other_at_load`
is the memory in no category when the first forward began (imports, data sets), `other_first_step` what the first step added
(buffers that MKL and oneDNN keep, late imports), `other_since` the rest of `other`: Python's own objects, results that are
still alive. `exact` says that every category was measured, `peak_exact` that `bytes_peak` is the phase's peak and not only a
lower bound. `peak_models` has the names of the models that had run in the step of that peak; the second of several models with
one name is `name #2`.

Memory. `saved_bytes` of a row of `modules` is what autograd keeps for backward in the module's own operations;
`subtree_saved_bytes` adds the modules within it. `saved_bytes` of a parameter is that of the module that owns it. A storage is
charged to the operation that saved it first in the forward. `living_graphs` describes the graphs of `forwards` calls of root
modules that are alive at the end of `step` although no backward of that step reached them (collected losses, evaluation without
`no_grad`), null where there are none: the step of the oldest one, 0 before the first step, and the bytes they keep, which are
activations. Where `at_least` is true there may be more of them, and the oldest may be of a later step. `buffers` are the
tensors of modules that are no parameters, as they were when gradtui listed the models; `state_dict` has those that are
`persistent`. `checkpointed` has the modules with operations in checkpointed regions: the bytes that backward recomputes there
(null if unknown), and the inputs that a region keeps, counted under the innermost module that contains the region.
`device_memory` (see `gradtui.export.device_memory`) is null where no CUDA device was in use. `out_of_memory` lists the failed
allocations, whether or not the script caught the exception: the first few with the holders of the memory at that time, and only
some of many more.

Commands. `freezes` describes what commands hold frozen at the end: the paths of the parameters; of those, the ones that the
script has set back to trainable since (they were frozen again); and the paths of the modules whose running statistics are held.
`added_to_optimizers` lists the optimizers that hold parameters which commands have added: `own` counts the script's own
parameters, `added` has the paths of the others. `trained_and_taken_out` has the paths of parameters that have trained because
of a command and that are frozen again: their weights differ from those that the script keeps frozen. `interventions` are the
newest applied changes, whoever made them: `command` and its fields as in a schedule file (`gradtui.protocol.codec`), the number
of executed steps (`step`) and of steps that a loss scaler had skipped since (`skipped`) when the change was applied, and the
paths of the parameters that it froze or unfroze. `interventions_dropped` counts the older ones. `refused` are the newest
commands that were not carried out (a pause on one of several ranks), each with the `reason`.

Optimizers. `optimizers` has every optimizer that was made or stepped, in order, each with its own number of `steps`; `freed`
says that it no longer exists. After the first 1,000, a new optimizer takes the row of a freed one, and its steps are added:
`sharing` is the number of optimizers that share a row. `group_settings` has the settings of each parameter group by the
optimizer's own names (`lr`, `momentum`, `betas`); `since_steps` are two steps, and the settings are in use since a step from
the first to the second.

Models. `models` are in the order gradtui found them: at most the last 64 that are gone (`current` false), with their last
measurements, then those that exist now. `evaluated_only` says that the model ran for evaluation, and that no optimizer owns and
no gradient reached a parameter of it. `part_of` names the model that contains its modules, where it is no longer a model of its
own. The following are of each model as of `measured_step`: `trainable`, the elements that require a gradient; `gradient_bytes`,
the bytes of `.grad` when a step has ended; `activation_bytes`, what autograd keeps for backward in the model's own operations
(the loss is none of them); `bucket_bytes`, the buckets of DistributedDataParallel that hold the gradients once more, which the
memory breakdown counts in `other`; `run_under`, the elements that require a gradient and those that do not, by the grad mode
their module ran under (`grad`, `no_grad`, `inference_mode`, `not_run`, `unknown`, or `reentrant_checkpoint`: within one, no
input of which requires a gradient), which tells apart all ways of excluding a part from training. `backward` is the freeze
frontier: `stops_at`, the paths where backward stops although something with parameters ran before in the same model;
`never_enters`, the topmost modules with parameters that ran and that backward never enters; and both `in_words`. The paths are
empty and `in_words` is null where gradtui has not followed the gradient. `parameters`, `modules` and `gradient_norm` are of the
models that trained last, even where all of these are gone and others have been evaluated since. `unregistered` are modules that
run inside a model without being registered with it (a Python list of layers), as of the last sampled step: the path of their
`caller`, `model` where they are shown as a model of their own, and the elements of their parameters.

Outcome. `bad_step` (see `gradtui.export.bad_step`) is where NaN or Inf appeared first, null if neither did. `exit_code` is null
while the run goes on; `child_cpu_seconds`, the CPU time of the script's child processes, is null unless nothing was trained in
this process. `problems` are the parts of gradtui that failed, each with its newest `error` and the number of its `failures`;
empty if none failed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from gradtui.export import gradients
from gradtui.export.bad_step import bad_step
from gradtui.export.device_memory import device_memory
from gradtui.export.interventions import freezes, interventions, refused
from gradtui.protocol.events import OutOfMemory
from gradtui.protocol.vocabulary import BufferInfo, Phase
from gradtui.state.model_records import MODE_WORDS, model_labels, model_records, reported_tree
from gradtui.state.run_state import CostRecord, ModelRecord, PhaseRecord, RunState
from gradtui.state.selectors import norm_steps_of, unexplained_growth, unexplained_parts
from gradtui.text import record_sentence, state_reason

SCHEMA = 1


def summarise(state: RunState, *, dropped: int) -> dict[str, Any]:
    """Return the summary of a run; `dropped` counts the events that were not drained in time."""
    started, ended = state.started, state.ended
    models, optimizers = _models(state), _optimizers(state)
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
        "micro_steps": state.micro_steps,
        "skipped_steps": state.skipped_steps,
        "models": models,
        "optimizers": optimizers,
        "phases": phases,
        "step_peak": _step_peak(state),
        "device_memory": device_memory(state),
        "checkpointed": _checkpointed(state),
        "living_graphs": _living_graphs(state),
        "gradient_norm": gradients.gradient_norm(state),
        "bad_step": bad_step(state),
        "modules": gradients.modules(state),
        "parameters": _parameters(state),
        "buffers": [_buffer(info) for info in state.tree.buffers],
        "freezes": freezes(state),
        "interventions": interventions(state),
        "interventions_dropped": state.intervention_count - len(state.interventions),
        "refused": refused(state),
        "out_of_memory": [_out_of_memory(event) for event in state.out_of_memory],
        "findings": [],
        "problems": {part: asdict(problem) for part, problem in state.problems.items()},
        "unregistered": [asdict(module) for module in state.unregistered],
        "cost": _cost(state, dropped),
    }


def write(summary: dict[str, Any], path: Path) -> None:
    """Write a summary to `path`, atomically if it is a file, in place if it is a device or a pipe. Raises OSError."""
    if is_replaceable(path):
        write_anew(summary, path)
        return
    with open(path, "w", encoding="utf-8") as stream:
        _dump(summary, stream)


def write_anew(summary: dict[str, Any], path: Path, put_in_place: Callable[[Path, Path], None] = os.replace) -> None:
    """Write a summary to a new file, which `put_in_place` moves to `path`. Raises OSError and what `put_in_place` raises."""
    path = path.resolve()
    # In a shared directory another user could create a link with a predictable name.
    name = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    # The kernel applies the umask. Reading it by `os.umask` changes it for a moment, under the script's own threads.
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            _dump(summary, stream)
        put_in_place(name, path)
    except BaseException:
        os.unlink(name)
        raise


def is_replaceable(path: Path) -> bool:
    """Return whether a new file may replace `path`: False for anything but a file (`/dev/stdout`, a pipe)."""
    return not path.exists() or path.is_file()


def _dump(summary: dict[str, Any], stream: TextIO) -> None:
    json.dump(summary, stream, indent=1, allow_nan=False)
    stream.write("\n")


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


def _living_graphs(state: RunState) -> dict[str, Any] | None:
    graphs = state.graphs
    if graphs is None or not graphs.forwards:
        return None
    return {
        "step": graphs.step,
        "forwards": graphs.forwards,
        "at_least": graphs.at_least,
        "since_step": graphs.since_step,
        "bytes": graphs.bytes,
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


def _module_path(state: RunState, index: int) -> str | None:
    return state.tree.modules[index].path if index >= 0 else None


def _models(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "name": record.name,
            "type": record.type_name,
            "current": record.current,
            "evaluated_only": record.evaluated_only,
            "part_of": record.part_of,
            "parameters": record.parameters,
            "trainable": record.trainable,
            "measured_step": record.step,
            "gradient_bytes": record.gradient_bytes,
            "activation_bytes": record.activation_bytes,
            "bucket_bytes": record.bucket_bytes,
            "run_under": _run_under(record),
            "backward": {
                "stops_at": list(record.stops),
                "never_enters": list(record.never_entered),
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
            "type": optimizer.type_name,
            "parameters": len(optimizer.parameters) + optimizer.unknown_parameters,
            "groups": optimizer.groups,
            "steps": steps,
            "freed": optimizer.freed,
            "sharing": optimizer.sharing,
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
        "other_at_load": at_load,
        "other_first_step": first_step,
        "other_since": since,
        "bytes_peak": record.peak,
        "peak_exact": record.peak_exact if record.peak is not None else None,
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


def _buffer(info: BufferInfo) -> dict[str, Any]:
    return {
        "path": info.path,
        "shape": list(info.shape),
        "dtype": info.dtype,
        "bytes": info.bytes,
        "persistent": info.persistent,
    }


def _out_of_memory(event: OutOfMemory) -> dict[str, Any]:
    return {
        "number": event.number,
        "step": event.step,
        "seconds": event.at,
        "device": event.device,
        "message": event.message,
        "requested_bytes": event.requested,
        "phase": event.phase.value,
        "module": event.module,
        "bytes": {**dict(event.categories), "total": event.total} if event.categories else None,
        "largest": [asdict(storage) for storage in event.largest],
        "whole": event.whole,
        "file": event.file,
    }


def _device_us(cost: CostRecord) -> float | None:
    if cost.own_device_seconds is None or not cost.steps:
        return None
    return cost.own_device_seconds * 1e6 / cost.steps


def _cost(state: RunState, dropped: int) -> dict[str, Any]:
    cost = state.cost
    return {
        "us_per_step": cost.own_seconds * 1e6 / cost.steps if cost.steps else None,
        "device_us_per_step": _device_us(cost),
        "share_of_step": cost.share,
        "steps_exempt_from_budget": cost.exempt_steps,
        "share_of_other_steps": cost.share_of_others,
        "setup_seconds": cost.setup_seconds,
        "dropped_events": dropped,
        "dropped_readings": cost.readings_dropped,
        "steps_with_estimated_phases": 0,
    }
