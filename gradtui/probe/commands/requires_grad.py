"""Set `requires_grad` of parameters: the toggles, applied by the training thread at a step boundary.

A boundary is the first training forward after an executed step: gradients are not being accumulated, no step is pending after a
backward, and no closure is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gradtui.probe.commands import refusals
from gradtui.probe.commands.optimizer_state import OptimizerStates, Treated
from gradtui.probe.commands.refusals import Training
from gradtui.probe.model import ModuleTree, joined_words, left_words
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.torch_private.private_names import compiled_in_place, compiled_module
from gradtui.protocol.commands import SetTrainable
from gradtui.state import selection as selections
from gradtui.state.model_parts import within
from gradtui.state.selection import NothingSelected, Selected
from gradtui.text import plural, size_text


def select(command: SetTrainable, tree: ModuleTree) -> tuple[str, dict[int, torch.Tensor]]:
    """Return the path that a command names, as the tree spells it, and the parameters by index.

    Raises `CommandRefused` if there is none.
    """
    path, indices = named(command.path, tree)
    return path, {index: tensor for index in indices if (tensor := tree.parameter_refs[index]()) is not None}


def named(selection: str, tree: ModuleTree) -> Selected:
    """Resolve a selection. Raises `CommandRefused` if it names no parameter."""
    try:
        selected = selections.find(selection, tree)
    except NothingSelected as nothing:
        raise CommandRefused(str(nothing)) from None
    if not selected.indices:
        raise CommandRefused(f"{selected.shown or 'the model'} has no parameters")
    return selected


def find(path: str, tree: ModuleTree) -> int | None:
    """Return the index of the parameter of this name or None; the name may predate a model that has come or gone since."""
    for spelling in selections.spellings(path, tree):
        for index, info in enumerate(tree.parameters):
            if spelling in info.names:
                return index
    return None


def find_module(path: str, tree: ModuleTree) -> int | None:
    """Return the index of the module of this path or None, as `find` does for parameters."""
    for spelling in selections.spellings(path, tree):
        for index, info in enumerate(tree.modules):
            if info.path == spelling:
                return index
    return None


def set_trainable(
    chosen: dict[int, torch.Tensor],
    tree: ModuleTree,
    training: Training,
    states: OptimizerStates,
    *,
    trainable: bool,
    shown: str,
    step: int,
    state: str = "keep",
) -> tuple[CommandResult, Treated]:
    """Freeze or unfreeze parameters. Raises `CommandRefused`, and changes nothing, where that would break the run.

    `shown` is the path that named the parameters, `step` the step at the boundary, `state` what to do with the optimizer state
    of frozen parameters. Also returns what was done with the state.
    """
    refusals.refuse_data_parallel(tree)
    refusals.refuse_special(chosen, tree)
    if trainable:
        treated = Treated(_unfreeze(chosen, tree, training, states, step), None)
    else:
        treated = _freeze(chosen, tree, training, states, state, step)
    text = f"{'unfroze' if trainable else 'froze'} {shown or 'the model'}: {extent(shown, chosen, tree)}{treated.words}"
    return CommandResult(text + _of_compiled(chosen, tree), tuple(chosen)), treated


def _freeze(
    chosen: dict[int, torch.Tensor],
    tree: ModuleTree,
    training: Training,
    states: OptimizerStates,
    state: str,
    step: int,
) -> Treated:
    optimizers = training.optimizers
    refusals.refuse_by_hand(training)
    refusals.refuse_lbfgs(chosen, optimizers, "it moves frozen parameters too, along a direction it remembers")
    refusals.refuse_to_end_training(chosen, tree, training)
    joined = {id(tensor) for tensor in states.joined.inside()}
    leaving = [tensor for tensor in chosen.values() if id(tensor) in joined]
    staying = [tensor for tensor in chosen.values() if id(tensor) not in joined]
    with _all_or_nothing(chosen.values()):
        for tensor in chosen.values():
            tensor.requires_grad_(False)
            # A zero or stale gradient still moves a parameter under momentum or weight decay; None does not.
            tensor.grad = None
        # `AddedParameters` keeps the state of parameters that leave their optimizer.
        treated = states.treat(staying if state == "keep" else chosen.values(), optimizers, state)
    words = treated.words + left_words(states.joined.leave(leaving, step))
    kept = states.joined.waiting_bytes(leaving) if state == "keep" else 0
    return treated._replace(words=words + (f"; {size_text(kept)} of state wait for the next unfreeze" if kept else ""))


def _unfreeze(
    chosen: dict[int, torch.Tensor], tree: ModuleTree, training: Training, states: OptimizerStates, step: int
) -> str:
    optimizers, joined = training.optimizers, states.joined
    refusals.refuse_lbfgs(chosen, optimizers, "it remembers directions of the parameters it began with")
    refusals.refuse_untrainable(chosen, tree, optimizers)
    owners = membership.owners(optimizers)
    orphans = {index: tensor for index, tensor in chosen.items() if id(tensor) not in owners}
    refusals.refuse_joining_in_backward(orphans, tree, training)
    try:
        joining = joined.plan(orphans, tree, optimizers)
    except ValueError as reason:
        raise CommandRefused(str(reason)) from None
    with _all_or_nothing(chosen.values()), joined.joining(joining, step):
        back = states.bring_back(chosen.values())
        for tensor in chosen.values():
            # A gradient from before the freeze would be added to the first new one.
            tensor.grad = None
            tensor.requires_grad_(True)
            if id(tensor) in owners:
                membership.begin(*owners[id(tensor)], tensor)
    done = f"; the state of {len(back)} is back where it was" if back else ""
    if joining:
        return done + joined_words(joining, joined)
    if orphans:
        there = "since there is none yet: they will not move until one owns them"
        return f"{done}; {len(orphans)} belong to no optimizer, {there}"
    return done


def _of_compiled(chosen: Iterable[int], tree: ModuleTree) -> str:
    """Return a note if a compiled module contains a parameter: torch.compile recompiles for each new pattern of flags."""
    compiled = {id(wrapped) for wrapper in tree.wrapper_refs if (wrapped := _wrapped(wrapper())) is not None}
    visited: set[int] = set()
    for index in chosen:
        module = tree.parameters[index].module
        while module >= 0 and module not in visited:
            visited.add(module)
            live = tree.module_refs[module]()
            if live is not None and (id(live) in compiled or compiled_in_place(live)):
                return "; torch.compile makes it anew in the next step, unless it has met these flags before"
            module = tree.modules[module].parent
    return ""


def _wrapped(wrapper: nn.Module | None) -> nn.Module | None:
    return compiled_module(wrapper) if wrapper is not None else None


@contextmanager
def _all_or_nothing(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restore `requires_grad` and `.grad` of these tensors if the body raises."""
    before = [(tensor, tensor.requires_grad, tensor.grad) for tensor in tensors]
    try:
        yield
    except BaseException:
        for tensor, flag, gradient in before:
            if tensor.requires_grad is not flag:
                tensor.requires_grad_(flag)
            tensor.grad = gradient
        raise


def extent(path: str, chosen: dict[int, torch.Tensor], tree: ModuleTree) -> str:
    size = sum(tree.parameters[index].count for index in chosen)
    tensors = plural(len(chosen), "tensor")
    # Further paths are worth a mention only if the user named a path, not a pattern or a preset.
    is_path = any(within(name, path) for index in chosen for name in tree.parameters[index].names)
    elsewhere = [listed for index in chosen if is_path and not within(listed := tree.parameters[index].path, path)]
    tied = f" (tied to {', '.join(elsewhere[:3])}{' …' if len(elsewhere) > 3 else ''})" if elsewhere else ""
    return f"{tensors}, {size:,} parameter{'' if size == 1 else 's'}{tied}"
