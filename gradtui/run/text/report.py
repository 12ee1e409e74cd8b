"""The progress of a run in one line, and the report on a run that has ended, which is in the summary. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradtui.protocol.events import SEVERAL_THREADS, WATCHING, DeviceFigures
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.devices import cuda_devices
from gradtui.run.state.memory.reconciliation import reconcile
from gradtui.run.state.memory.run_memory import memory_now, phase_bound
from gradtui.run.state.model_records import model_labels, model_records, peak_owner, reported_tree, state_counts
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.optimizers.optimizer_turns import optimizer_turns, summarised_steps
from gradtui.run.state.parts.curves import NormSummary
from gradtui.run.state.run_state import ModelRecord, RunState
from gradtui.run.state.selectors import is_on_host, newest_step
from gradtui.run.state.time.module_times import module_timing
from gradtui.run.state.time.time_left import time_left
from gradtui.run.text.findings import finding_lines
from gradtui.run.text.forecast import forecast_error_words
from gradtui.run.text.frontier import frontier_sentence
from gradtui.run.text.memory import graph_lines, most_saved_text, place_of
from gradtui.run.text.models import record_text, same_storage_lines, unregistered_lines
from gradtui.run.text.module_times import module_time_lines
from gradtui.run.text.optimizers import (
    OF_PARTS,
    main_of,
    newest_losses,
    newest_norms,
    of_step_text,
    others_norm_courses,
    steps_by_optimizer,
)
from gradtui.run.text.overhead import overhead_lines
from gradtui.run.text.problem_states import problem_lines
from gradtui.run.text.ranks import ranks_text
from gradtui.run.text.return_policies import policy_lines
from gradtui.run.text.step_times import time_lines
from gradtui.run.text.throughput import throughput_words
from gradtui.run.text.units import bounded, duration_text, plural, size_text, time_left_text
from gradtui.system.printable import printable

if TYPE_CHECKING:
    from gradtui.protocol.run_summary import RunSummary
    from gradtui.protocol.summary_gradients import BadStep

_MODELS_SHOWN = 8
"""Maximum number of models in the report, if the run had more than exist now. The summary has more."""

_BUSY_CHILDREN_S = 0.5
"""Child processes that have used less CPU time together have trained nothing: importing torch takes longer."""


def progress_line(state: RunState) -> str:
    """Return the progress of the run as one line."""
    parts = [
        f"step {newest_step(state):,}" + (f" (iteration {state.iterations:,})" if state.iterations is not None else "")
    ]
    if state.steps_per_second is not None:
        parts.append(f"{state.steps_per_second:.3g}/s")
        parts += throughput_words(state)[:1]
    left = time_left(state)
    if left is not None:
        parts.append(f"{time_left_text(left.seconds)} left{' of the epoch' if left.is_of_epoch else ''}")
    losses, norms, shown = newest_losses(state), newest_norms(state), shown_norms(state)
    if losses:
        parts.append(f"loss {losses}")
    elif state.loss.last is not None:
        parts.append(f"loss {state.loss.last:.4g}{of_step_text(state, state.loss.steps[-1])}")
    if norms:
        parts.append(f"gradient norm {norms}")
    elif shown.total.last is not None:
        bound = "≥ " if shown.is_part else ""
        parts.append(f"gradient norm {bound}{shown.total.last:.3g}{of_step_text(state, shown.total.steps[-1])}")
    parts += pinned_text(state)
    held = memory_now(state)
    if held is not None:
        parts.append(f"memory {size_text(held)}")
    parts.append(str(state.phase))
    if state.job is not None:
        parts.append(ranks_text(state.job))
    return "  ".join(parts)


def pinned_text(state: RunState) -> list[str]:
    """Return the newest value of the metric that the user has pinned, if there is one."""
    metric = state.metrics.named(state.metrics.pinned)
    if metric is None or metric.last is None:
        return []
    return [f"{metric.name} {metric.last:.4g}{of_step_text(state, metric.points.steps[-1])}"]


def schedule_lines(state: RunState) -> list[str]:
    """Return how the run deviated from its schedule; empty if it did not."""
    return [f"schedule: {note}" for note in state.schedule_notes]


def report_lines(state: RunState, summary: RunSummary) -> list[str]:
    """Return all that is known of a run that has ended, in sentences. `summary` has no such sentences yet."""
    tree = reported_tree(state)
    endings = [f"step {each.step:,}: {each.in_words}" for each in summary.out_of_memory if each.bytes]
    endings += schedule_lines(state) + policy_lines(state)
    if state.step == 0 and state.micro_steps == 0:
        return [*summary.untrained, *finding_lines(state), *endings]
    by_hand, of = _by_hand(state), steps_by_optimizer(state)
    lines = [
        f"{state.step} steps{by_hand}{f' ({of})' if of else ''}{_in_iterations(state)}{_of_thread(state)}, "
        f"{state.micro_steps} micro-steps in {duration_text(state.seconds)}"
        + (f", {state.skipped_steps} skipped" if state.skipped_steps else "")
    ]
    lines += finding_lines(state)
    lines += model_lines(state)
    frontier = frontier_sentence(tree)
    if frontier is not None:
        lines.append(frontier[0].lower() + frontier[1:].rstrip("."))
    saved = most_saved_text(tree)
    if saved is not None:
        lines.append(saved)
    named = [f"{words} {count:,}" for words, count in state_counts(state, tree).items()]
    if named:
        lines.append("parameter tensors: " + ", ".join(named))
    lines += unregistered_lines(state.unregistered, state.unregistered_omitted)
    lines += problem_lines(tree) + same_storage_lines(tree, state.optimizers)
    lines += _phase_lines(state)
    lines += graph_lines(state)
    lines += _device_words(state)
    lines += _gradient_lines(state, summary.bad_step)
    lines += [f"forecasts {words}" for words in forecast_error_words(summary.forecast_errors)]
    lines += time_lines(summary.step_time)
    lines += [summary.throughput.in_words] if summary.throughput is not None else []
    lines += module_time_lines(summary.modules, module_timing(tree))
    return [*lines, *overhead_lines(state), *summary.checkpoints, *endings]


def steps_words(state: RunState) -> str:
    """Return the number of steps and who made them: `1,066 steps (Generator 533, Discriminator 533) in 533 iterations`."""
    of = steps_by_optimizer(state)
    return f"{plural(state.step, 'step')}{_by_hand(state)}{f' ({of})' if of else ''}{_in_iterations(state)}{_of_thread(state)}"


def _in_iterations(state: RunState) -> str:
    return f" in {plural(state.iterations, 'iteration')}" if state.iterations is not None else ""


def _of_thread(state: RunState) -> str:
    several = any(each.error == SEVERAL_THREADS for each in state.problems.values())
    return " of one of the threads that train (the others are not counted)" if several else ""


def _by_hand(state: RunState) -> str:
    return " without an optimizer" if state.step and not sum(state.optimizer_steps) else ""


def trained_models(state: RunState, most: int) -> list[str]:
    """Return the models that trained to the end, each in words or, if there are more than `most`, in one line.

    Where none of them did, the newest ones stand for them. The others are counted.
    """
    labels, records = model_labels(state), _reported_records(state)
    named = [each for each in records if each.current and each.has_trained and not each.evaluated_only]
    named = named or records[-most:]
    if len(named) > most:
        elements = [f"{labels[each.number]} {each.trainable or 0:,}" for each in named[:_MODELS_SHOWN]]
        left = len(named) - _MODELS_SHOWN
        lines = [f"{', '.join(elements)}{f' and {left} more models' if left > 0 else ''} trainable"]
    else:
        lines = [_model_words(each, labels[each.number]) for each in named]
    others = [each for each in records if each not in named]
    evaluated = sum(each.current and each.evaluated_only for each in others)
    earlier = sum(not each.current for each in others)
    rest = len(others) - evaluated - earlier
    counted = [f"{evaluated} only evaluated"] if evaluated else []
    counted += [plural(earlier, "earlier model")] if earlier else []
    counted += [plural(rest, "other model")] if rest else []
    if counted and lines:
        lines[-1] += f"; {', '.join(counted)}"
    return lines


def _reported_records(state: RunState) -> list[ModelRecord]:
    # A model that became part of another one before it was trained is not reported as a model of its own.
    return [each for each in model_records(state) if each.part_of is None or each.has_trained]


def model_lines(state: RunState) -> list[str]:
    """Return a line for each of the newest models."""
    labels, records = model_labels(state), _reported_records(state)
    shown = records[-max(_MODELS_SHOWN, len(state.tree.models)) :]
    left_out = [f"{len(records) - len(shown)} earlier models are not listed"] if len(shown) < len(records) else []
    return left_out + [f"model {_model_words(record, labels[record.number])}" for record in shown]


def _phase_lines(state: RunState) -> list[str]:
    lines: list[str] = []
    loop = math.fsum(record.seconds for phase, record in state.phases.items() if phase is not Phase.LOAD)
    for phase in Phase:
        record = state.phases[phase]
        if record.seconds or record.count:
            lines.append(_phase_line(state, phase, loop))
    lines += [f"  {line}" for line in _clock_lines(state)]
    if state.step_profile is not None:
        where = place_of(state, state.step_profile.peak_module)
        size = size_text(state.step_profile.peak)
        lines.append(f"within a step memory was highest in {state.step_profile.peak_phase}{where}: {size}")
    return lines


def _clock_lines(state: RunState) -> list[str]:
    """That the seconds of phases are host time, and the device time of each phase as far as it was measured."""
    # Bytes of a model on a device mean that the host launches operations, and the device runs them later.
    if is_on_host(state):
        return []
    lines = ["these seconds are host time: the device runs operations after the host has launched them"]
    timed = [(phase, record) for phase, record in state.phases.items() if record.device_steps]
    if timed:
        means = [f"{phase} {1e3 * record.device_seconds / record.device_steps:.2f} ms" for phase, record in timed]
        steps = max(record.device_steps for _, record in timed)
        lines.append(f"device time of a phase, idle time included, mean of {plural(steps, 'step')}: {', '.join(means)}")
    return lines


def untrained_lines(state: RunState) -> list[str]:
    """Return why a run that has ended trained nothing, or nothing that is known."""
    if (trouble := state.problems.get(WATCHING)) is not None:
        return [f"unknown, because gradtui could not watch the script: {trouble.error}"]
    failed = state.ended is not None and (state.ended.error is not None or state.ended.exit_code != 0)
    happened = "failed before it trained anything" if failed else "ran to its end without training anything"
    happened = "was stopped before it trained anything" if failed and state.schedule_failed else happened
    asked = state.phases[Phase.BACKWARD].count
    if asked:
        return [
            ("the script failed. It called" if failed else "the script called")
            + f" torch.autograd.grad or torch.func {asked:,} times, and never backward() or an optimizer",
            "gradtui counts no steps without backward() or an optimizer, and does not see how the script uses such gradients",
            *_phase_lines(state),
        ]
    lines = [f"the script {happened} in this process: no backward, no optimizer step"]
    elsewhere = state.ended.child_cpu_seconds if state.ended is not None else None
    if elsewhere is not None and elsewhere >= _BUSY_CHILDREN_S:
        lines.append(
            f"its child processes used {elsewhere:.1f} s of CPU time; gradtui does not show what they train. It shows the "
            "processes of a launcher (gradtui torchrun …), of torch.multiprocessing.spawn and of Lightning"
        )
    return lines


def _gradient_lines(state: RunState, bad_step: BadStep | None) -> list[str]:
    lines = []
    norms = state.norm_summary
    if norms.last is not None:
        lines.append(_norm_line(state, norms))
        lines += [f"gradient norm of {text}" for text in others_norm_courses(state)]
        if norms.unconfirmed_steps:
            count = f"at {norms.unconfirmed_steps:,} of these steps"
            lines.append(
                f"{count} the norm was read at the end of backward: the script may have clipped the gradients afterwards"
            )
    return lines if bad_step is None else [*lines, bad_step.in_words]


def _norm_line(state: RunState, norms: NormSummary) -> str:
    """Return `gradient norm 5.99 (step 1) → 3.78 (step 40), min 1.72 (step 31), max 6.1 (step 2), read at 33 of 40 steps`."""
    ends = [
        f"{norm:.3g} (step {step:,})" for norm, step in ((norms.first, norms.first_step), (norms.last, norms.last_step))
    ]
    parts = [" → ".join(ends) if norms.measured_steps > 1 else ends[0]]
    if norms.measured_steps > 2:
        named = (("min", norms.smallest, norms.smallest_step), ("max", norms.largest, norms.largest_step))
        parts += [f"{name} {norm:.3g} (step {step:,})" for name, norm, step in named if norm is not None]
    turns = optimizer_turns(state)
    main = main_of(turns, state)
    steps = summarised_steps(state)
    is_stage = norms.since_step and norms.since_step == state.main_since
    why = "another optimizer began" if is_stage else "the models changed"
    since = f" since {why} at step {norms.since_step:,}" if norms.since_step else ""
    read = "1 step" if steps == 1 else f"{norms.measured_steps:,} of {steps:,} steps"
    whose = f" of {printable(main.name)}" if main is not None else ""
    whose += f" of one of {turns.parts} optimizers" if turns.parts else ""
    if state.main_optimizer == -1 and not norms.since_step:
        # Recordings of earlier versions do not say which optimizer made a step.
        stepped = sum(count > 0 for count in state.optimizer_steps)
        whose += f" of {stepped} optimizers" if stepped > 1 else ""
    whose += f" {OF_PARTS}" if state.tree.is_sharded else ""
    return f"gradient norm {', '.join(parts)}, read at {read}{whose}{since}{_left_out(state)}"


def _model_words(model: ModelRecord, label: str) -> str:
    # Many scripts call the variable "model", which does not identify it.
    named = model.type_name if label in ("model", model.type_name) else f"{label} ({model.type_name})"
    return f"{named}: {record_text(model)}" if model.step is not None else named


def _device_words(state: RunState) -> list[str]:
    """Return the driver's last memory figure of each device and its parts; empty without a CUDA device."""
    devices = cuda_devices(state.device)
    return [_device_line(device, f" on cuda:{device.index}" if len(devices) > 1 else "") for device in devices]


def _device_line(device: DeviceFigures, where: str) -> str:
    found = reconcile(device)
    if found is None:
        return f"device memory{where}: unknown"
    whose = {"process": "of this process", "device": "of all processes", None: "of torch's allocator"}[found.scope]
    total = "" if found.total is None else f" {size_text(found.total, 2)} ="
    parts = " + ".join(
        f"{part.name} {'unknown' if part.size is None else size_text(part.size, 2)}" for part in reversed(found.parts)
    )
    return f"device memory {whose}{where}, at the last reading:{total} {parts}"


def _phase_line(state: RunState, phase: Phase, loop: float) -> str:
    """Return the time of a phase, its share of the `loop` in seconds, and its peak. Imports are before the loop."""
    record = state.phases[phase]
    owner = peak_owner(state, record)
    share = f"{100 * record.seconds / loop:5.1f} %" if loop and phase is not Phase.LOAD else " " * 7
    whose = f" with {owner}" if owner else ""
    memory = (
        ""
        if record.peak is None
        else f"  peak {bounded(phase_bound(state, record), size_text(record.peak), ' ')}{whose}"
    )
    return f"  {phase.value:<10} {record.seconds:8.2f} s {share}{memory}"


def _left_out(state: RunState) -> str:
    late, without_room = state.cost.readings_late, state.cost.readings_without_room
    text = f"; {late:,} were not read, since the device had not finished earlier readings" if late else ""
    return text + (f"; {without_room:,} were not read, since the device had no memory left" if without_room else "")
