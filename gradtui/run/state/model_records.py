"""Records of each model of a run, also of those that are gone: plain numbers that outlive the model. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gradtui.protocol.vocabulary import ENTERED, STATE_NAMES, GradMode, ModelInfo, ParameterState
from gradtui.run.state.backward.frontier import frontier
from gradtui.run.state.parts.phase_record import PhaseRecord
from gradtui.run.state.run_state import ModelRecord, Regime, RunState
from gradtui.run.state.selectors import norm_steps_of, saved_bytes, subtree, totals
from gradtui.run.state.tree_state import TreeState

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
    now = {record.number: record for record in (known_record(state, index) for index in range(len(state.tree.models)))}
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


def known_record(state: RunState, index: int) -> ModelRecord:
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
    flow, model = tree.gradient_flow, tree.models[index]
    inside = slice(model.root, model.root + tree.modules[model.root].subtree_modules)
    if flow is None or not flow.grad_modes[inside].strip(GradMode.NOT_RUN.value):
        return False
    if any(letter in ENTERED for letter in flow.reach[inside]) or (flow.called and flow.called[model.root] > 0):
        return False
    own = subtree(tree.modules[model.root])
    return not any(parameter in own for optimizer in state.optimizers for parameter in optimizer.parameters)


def is_measured(tree: TreeState, index: int) -> bool:
    """Return whether a step of this model with a backward was sampled."""
    return index < len(tree.steps) and tree.steps[index] > 0


def _measured(tree: TreeState, model: ModelInfo, index: int) -> ModelRecord:
    root = tree.modules[model.root]
    where = range(root.first_parameter, root.first_parameter + root.subtree_parameters)
    sums = totals(tree, root)
    known = "-" not in tree.trainable[where.start : where.stop]
    record = ModelRecord(model.number, model.name, model.type_name, sums.parameters, sums.trainable if known else None)
    flow = tree.gradient_flow
    if flow is None:
        return record
    regimes = _regimes(tree, where) if known else ()
    record = replace(record, step=flow.step, gradient_bytes=flow.gradients[index], regimes=regimes)
    if not is_measured(tree, index):
        record = replace(record, step=tree.evaluated.get(model.number, flow.step))
        modes = set(flow.grad_modes[model.root : model.root + root.subtree_modules])
        nothing = modes <= {GradMode.NO_GRAD.value, GradMode.INFERENCE.value}
        return replace(record, activation_bytes=0 if nothing else None)
    line = frontier(tree, index)
    inside = range(model.root, model.root + root.subtree_modules)
    has_gradient = any(letter in ENTERED for letter in flow.reach[inside.start : inside.stop])
    # A model that some steps do not call may have a gradient after the last sampled one.
    has_later = any(step > flow.step for step in norm_steps_of(tree, where) or ())
    stops = [tree.modules[i].path for i in line.stops if i in inside] if line else []
    stops += [tree.parameters[i].path for i in line.stop_parameters if i in where] if line else []
    return replace(
        record,
        step=tree.steps[index] if tree.steps else flow.step,
        activation_bytes=saved_bytes(tree, model.root),
        bucket_bytes=flow.buckets[index] if index < len(flow.buckets) else None,
        has_trained=has_gradient or has_later,
        stops=tuple(stops),
        never_entered=tuple(tree.modules[i].path for i in line.never_entered if i in inside) if line else (),
    )


def _regimes(tree: TreeState, where: range) -> tuple[Regime, ...]:
    counts: dict[tuple[str, bool], int] = {}
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    for index in where:
        key = modes[tree.parameters[index].module], tree.trainable[index] == "1"
        counts[key] = counts.get(key, 0) + tree.parameters[index].count
    return tuple(Regime(mode, trainable, count) for (mode, trainable), count in counts.items())
