"""Describe models in words, and what is unusual about their modules and parameters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.vocabulary import GradMode, OptimizerInfo, UnregisteredModule
from gradtui.run.explanation.facts import SharedMemory
from gradtui.run.explanation.row import shared_memory
from gradtui.run.state.run_state import ModelRecord
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.units import listed, size_text

_MAX_KINDS = 4
_MAX_LINES = 4


def record_text(record: ModelRecord) -> str:
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
        parts.append(f"{size_text(record.bucket_bytes, 2)} in data-parallel buckets")
    return ", ".join(parts)


def _regime_words(record: ModelRecord) -> dict[str, int]:
    words: dict[str, int] = {}
    for regime in record.regimes:
        key = ("trainable" if regime.trainable else "frozen") + _MODE_SUFFIXES.get(regime.grad_mode, "")
        if regime.grad_mode == GradMode.NOT_RUN.value and record.has_trained:
            key += f" in step {record.step:,}"
        words[key] = words.get(key, 0) + regime.parameters
    return words


_MODE_SUFFIXES = {
    GradMode.NO_GRAD.value: " under no_grad",
    GradMode.INFERENCE.value: " in inference mode",
    GradMode.NOT_CHECKPOINTED.value: " in a reentrant checkpoint that records nothing",
    GradMode.NOT_RUN.value: " not run",
}


def unregistered_lines(modules: Sequence[UnregisteredModule], omitted: int = 0) -> list[str]:
    """Return two lines, without a full stop, for the modules of one type that one module calls.

    `omitted`: the number of further modules, which `modules` does not list.
    """
    groups: dict[tuple[str, str], list[UnregisteredModule]] = {}
    for module in modules:
        groups.setdefault((module.caller, module.type_name), []).append(module)
    lines = [line for group in list(groups.values())[:_MAX_KINDS] for line in _unregistered_words(group)]
    left = len(groups) - _MAX_KINDS
    if left > 0:
        lines.append(f"{left:,} more kinds of unregistered modules")
    if omitted:
        lines.append(f"{omitted:,} more unregistered modules run, which gradtui does not list")
    return lines


def _unregistered_words(group: Sequence[UnregisteredModule]) -> tuple[str, str]:
    caller, kind, total = group[0].caller, group[0].type_name, sum(module.parameters for module in group)
    left_out = f"parameters(), state_dict() and to() of {caller} leave"
    if len(group) == 1:
        what = f"{kind} ({total:,} parameters) runs inside {caller} but is not registered: {left_out} it out"
        remedy = f"to register {kind}, assign it to an attribute of a module"
    else:
        many = f"{len(group):,} × {kind} ({total:,} parameters)"
        what = f"{many} run inside {caller} but are not registered: {left_out} them out"
        remedy = "to register modules in a list, use nn.ModuleList"
    return what, f"{_training(group, total)}; {remedy}"


def _training(group: Sequence[UnregisteredModule], total: int) -> str:
    owned, trainable, with_gradient = (
        sum(getattr(each, name) for each in group) for name in ("in_optimizer", "trainable", "with_gradient")
    )
    if not trainable:
        return f"the parameters of {group[0].type_name} require no gradient"
    if owned:
        return f"an optimizer has {'the' if owned == total else f'{owned:,} of the'} parameters of {group[0].type_name}"
    return f"no optimizer has the parameters of {group[0].type_name}" + (
        ", although they get a gradient" if with_gradient else ""
    )


def same_storage_text(found: SharedMemory) -> str:
    """What it means that others use the memory of a parameter, as a sentence without a full stop."""
    effect = "what changes one changes the others"
    if found.stepped > 1:
        effect = f"an optimizer step updates it {found.stepped} times"
    objects = f"{listed(found.paths)} are {len(found.paths)} Parameter objects over the same memory"
    # A teacher or an average that shares the weights is no tie.
    follows = found.of_several_models and found.stepped <= 1
    remedy = "clone the values to give each its own" if follows else "assign one Parameter to tie them"
    return f"{objects}: {effect}; {remedy}"


def same_storage_lines(tree: TreeState, optimizers: Sequence[OptimizerInfo]) -> list[str]:
    """Return a line for each group of such parameters."""
    named: set[str] = set()
    lines = []
    for index, info in enumerate(tree.parameters):
        if info.path not in named and (found := shared_memory(tree, index, optimizers)) is not None:
            named.update(info.same_storage)
            lines.append(same_storage_text(found))
    return lines[:_MAX_LINES]
