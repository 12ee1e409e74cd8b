"""Records of each model of a run, also of those that are gone: plain numbers that outlive the model. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gradtui.protocol.events import ModelsFound
from gradtui.protocol.vocabulary import ENTERED, STATE_NAMES, GradMode, ModelInfo, ParameterState
from gradtui.state.frontier import frontier, sentence
from gradtui.state.run_state import ModelRecord, PhaseRecord, Regime, RunState, TreeState
from gradtui.state.selectors import saved_bytes, subtree, totals
from gradtui.text import size_text

RECORDS_KEPT = 64

MODE_WORDS: dict[str, str] = {
    GradMode.GRAD.value: "grad",
    GradMode.NO_GRAD.value: "no_grad",
    GradMode.INFERENCE.value: "inference_mode",
    GradMode.NOT_CHECKPOINTED.value: "reentrant_checkpoint",
    GradMode.NOT_RUN.value: "not_run",
    GradMode.UNKNOWN.value: "unknown",
}
"""The name of each grad mode in a summary."""


def model_records(state: RunState) -> list[ModelRecord]:
    """Return the models of the run in the order they were found: at most the last 64 that are gone, and the present ones."""
    now = {record.number: record for record in (_known(state, index) for index in range(len(state.tree.models)))}
    return [*(record for record in state.models.values() if record.number not in now), *now.values()]


def model_labels(state: RunState) -> dict[int, str]:
    """Return the labels of the models of the run, by their numbers: the name, with a count if several have the same name."""
    records = model_records(state)
    names = [record.name for record in records]
    return {
        record.number: name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"
        for index, (record, name) in enumerate(zip(records, names))
    }


def peak_owner(state: RunState, record: PhaseRecord) -> str:
    """Return the labels of the models that had run in the step of a phase's peak; empty if the run had only one model, or none
    is known."""
    labels = model_labels(state)
    return " and ".join(labels[number] for number in record.peak_models if number in labels) if len(labels) > 1 else ""


def reported_tree(state: RunState) -> TreeState:
    """Return the models that the closing report describes: those that trained last, even if they are gone."""
    return state.trained_tree or state.tree


def state_counts(state: RunState, tree: TreeState) -> dict[str, int]:
    """Return the number of parameter tensors by the name of their state; those of only evaluated models count separately."""
    evaluated: set[int] = set()
    for index, model in enumerate(state.tree.models if tree is state.tree else ()):
        if is_evaluated_only(state, index):
            evaluated.update(subtree(tree.modules[model.root]))
    words = Counter(
        "evaluated only"
        if index in evaluated and letter == ParameterState.UNKNOWN.value
        else STATE_NAMES[ParameterState(letter)]
        for index, letter in enumerate(tree.states)
    )
    return dict(words)


def record_words(record: ModelRecord) -> str:
    """Describe a model in one clause: trainable and frozen elements by grad mode, and the memory held for it."""
    parts = ["evaluated only"] if record.evaluated_only else []
    parts += [f"{count:,} {words}" for words, count in _regime_words(record).items() if count]
    if not parts and record.trainable is not None:
        parts.append(f"{record.trainable:,} of {record.parameters:,} trainable")
    held = [("gradients", record.gradient_bytes), ("saved for backward", record.activation_bytes)]
    if record.evaluated_only:
        held = [(what, size) for what, size in held if size]
    parts += [f"{size_text(size, 2)} {what}" for what, size in held if size is not None]
    if record.bucket_bytes:
        parts.append(f"{size_text(record.bucket_bytes, 2)} in data-parallel buckets (counted as other)")
    return ", ".join(parts)


def _regime_words(record: ModelRecord) -> dict[str, int]:
    words: dict[str, int] = {}
    for regime in record.regimes:
        key = ("trainable" if regime.trainable else "frozen") + _MODE_SUFFIXES.get(regime.grad_mode, "")
        words[key] = words.get(key, 0) + regime.parameters
    return words


_MODE_SUFFIXES = {
    GradMode.NO_GRAD.value: " under no_grad",
    GradMode.INFERENCE.value: " in inference mode",
    GradMode.NOT_CHECKPOINTED.value: " in a reentrant checkpoint without a gradient",
    GradMode.NOT_RUN.value: " not run",
}


def keep_records(state: RunState, event: ModelsFound) -> None:
    """Keep the records of models that are not in the new list, before it replaces the old one."""
    hosts = _hosts(event)
    listed = {model.number for model in event.models}
    for index, model in enumerate(state.tree.models):
        record = _known(state, index)
        if record.step is not None or record.trainable is not None:
            root = state.tree.modules[model.root]
            inside = range(model.root, model.root + root.subtree_modules)
            host = next((hosts[module] for module in inside if module in hosts), None)
            part_of = host if model.number not in listed else None
            state.models.pop(record.number, None)
            state.models[record.number] = replace(record, current=False, part_of=part_of)
    for number in [*state.models][:-RECORDS_KEPT]:
        del state.models[number]


def _hosts(event: ModelsFound) -> dict[int, str]:
    """Map the former index of each module to the name of the model that contains it now."""
    hosts: dict[int, str] = {}
    for model in event.models:
        inside = range(model.root, model.root + event.modules[model.root].subtree_modules)
        hosts |= {event.former_modules[index]: model.name for index in inside if index < len(event.former_modules)}
    hosts.pop(-1, None)
    return hosts


def _known(state: RunState, index: int) -> ModelRecord:
    """Return the present record of a model, or the one from before the new list of models."""
    model = state.tree.models[index]
    record = _measured(state.tree, model, index)
    record = replace(record, evaluated_only=is_evaluated_only(state, index))
    before = state.models.get(model.number)
    if record.step is None and before is not None and before.parameters == record.parameters:
        return replace(before, name=record.name, current=True)
    return record


def is_evaluated_only(state: RunState, index: int) -> bool:
    """Return whether this model was called for evaluation, and nothing has trained it."""
    tree = state.tree
    reach, model = tree.reach, tree.models[index]
    inside = slice(model.root, model.root + tree.modules[model.root].subtree_modules)
    if reach is None or not reach.grad_modes[inside].strip(GradMode.NOT_RUN.value):
        return False
    if any(letter in ENTERED for letter in reach.reach[inside]) or (reach.called and reach.called[model.root] > 0):
        return False
    own = subtree(tree.modules[model.root])
    return not any(parameter in own for optimizer in state.optimizers for parameter in optimizer.parameters)


def _measured(tree: TreeState, model: ModelInfo, index: int) -> ModelRecord:
    root = tree.modules[model.root]
    where = range(root.first_parameter, root.first_parameter + root.subtree_parameters)
    sums = totals(tree, root)
    known = "-" not in tree.trainable[where.start : where.stop]
    record = ModelRecord(model.number, model.name, model.type_name, sums.parameters, sums.trainable if known else None)
    reach = tree.reach
    if reach is None:
        return record
    regimes = _regimes(tree, where) if known else ()
    record = replace(record, step=reach.step, gradient_bytes=reach.gradients[index], regimes=regimes)
    was_measured = index < len(tree.steps) and tree.steps[index] > 0
    if not was_measured:
        record = replace(record, step=tree.evaluated.get(model.number, reach.step))
        modes = set(reach.grad_modes[model.root : model.root + root.subtree_modules])
        nothing = modes <= {GradMode.NO_GRAD.value, GradMode.INFERENCE.value}
        return replace(record, activation_bytes=0 if nothing else None)
    line = frontier(tree, index)
    inside = range(model.root, model.root + root.subtree_modules)
    stops = [tree.modules[i].path for i in line.stops if i in inside] if line else []
    stops += [tree.parameters[i].path for i in line.stop_parameters if i in where] if line else []
    return replace(
        record,
        step=tree.steps[index] if tree.steps else reach.step,
        activation_bytes=saved_bytes(tree, model.root),
        bucket_bytes=reach.buckets[index] if index < len(reach.buckets) else None,
        has_trained=any(letter in ENTERED for letter in reach.reach[inside.start : inside.stop]),
        stops=tuple(stops),
        never_entered=tuple(tree.modules[i].path for i in line.never_entered if i in inside) if line else (),
        sentence=sentence(tree, index),
    )


def _regimes(tree: TreeState, where: range) -> tuple[Regime, ...]:
    """Count elements by grad mode and by whether they require a gradient."""
    counts: dict[tuple[str, bool], int] = {}
    modes = tree.reach.grad_modes if tree.reach is not None else ""
    for index in where:
        key = modes[tree.parameters[index].module], tree.trainable[index] == "1"
        counts[key] = counts.get(key, 0) + tree.parameters[index].count
    return tuple(Regime(mode, trainable, count) for (mode, trainable), count in counts.items())
