"""The only code that changes the script's objects: toggles, applied by the training thread at a step boundary.

A boundary is the first training forward after an executed step: gradients are not being accumulated, nothing is between
backward and step, no closure is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch.optim import Optimizer

from gradtui.probe import optimizer_membership as membership
from gradtui.probe import refusals
from gradtui.probe.applied import Applied
from gradtui.probe.module_tree import ModuleTree
from gradtui.probe.refusals import Refused, Training
from gradtui.protocol.commands import SetTrainable
from gradtui.state.model_parts import within
from gradtui.state.selection import NothingSelected, Selected, find


def select(command: SetTrainable, tree: ModuleTree) -> tuple[str, dict[int, torch.Tensor]]:
    """What a command names: the path as the tree has it, and the parameters by place. Raises `Refused` if there is none."""
    path, places = named(command.path, tree)
    return path, {place: tensor for place in places if (tensor := tree.parameter_refs[place]()) is not None}


def named(selection: str, tree: ModuleTree) -> Selected:
    """What a selection means. Raises `Refused` if it names no parameter."""
    try:
        selected = find(selection, tree)
    except NothingSelected as nothing:
        raise Refused(str(nothing)) from None
    if not selected.places:
        raise Refused(f"{selected.shown or 'the model'} has no parameters")
    return selected


def set_trainable(
    chosen: dict[int, torch.Tensor], tree: ModuleTree, training: Training, *, trainable: bool, shown: str
) -> Applied:
    """Freeze or unfreeze parameters. Raises `Refused` and changes nothing where that would break the run.

    `shown` is the path they were named by.
    """
    refusals.refuse_several_ranks(tree)
    refusals.refuse_special(chosen, tree)
    done = _unfreeze(chosen, tree, training) if trainable else _freeze(chosen, tree, training)
    text = f"{'unfroze' if trainable else 'froze'} {shown or 'the model'}: {_extent(shown, chosen, tree)}{done}"
    return Applied(text, tuple(chosen))


def _freeze(chosen: dict[int, torch.Tensor], tree: ModuleTree, training: Training) -> str:
    optimizers = training.optimizers
    refusals.refuse_by_hand(training)
    refusals.refuse_lbfgs(chosen, optimizers, "it moves frozen parameters too, along a direction it remembers")
    refusals.refuse_to_end_training(chosen, tree, training)
    with _all_or_nothing(chosen.values()):
        for tensor in chosen.values():
            tensor.requires_grad_(False)
            # A zero or stale gradient still moves a parameter under momentum or weight decay; None does not.
            tensor.grad = None
    return _state_that_stays(chosen.values(), optimizers)


def _state_that_stays(frozen: Iterable[torch.Tensor], optimizers: Iterable[Optimizer]) -> str:
    """A frozen parameter's optimizer state is kept: an unfreeze then goes on with the momentum it had."""
    owners = membership.owners(optimizers)
    sizes: dict[str, int] = {}
    for tensor in frozen:
        if id(tensor) in owners:
            optimizer = owners[id(tensor)][0]
            state = optimizer.state.get(tensor)
            values = state.values() if isinstance(state, dict) else ()
            kept = [value for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided]
            name = type(optimizer).__name__
            sizes[name] = sizes.get(name, 0) + sum(value.nbytes for value in kept)
    return "".join(f"; {name} keeps its {_size_words(size)} of state" for name, size in sizes.items() if size)


def _size_words(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} B"


def _unfreeze(chosen: dict[int, torch.Tensor], tree: ModuleTree, training: Training) -> str:
    optimizers = training.optimizers
    refusals.refuse_lbfgs(chosen, optimizers, "it remembers directions of the parameters it began with")
    refusals.refuse_untrainable(chosen, tree, optimizers)
    owners = membership.owners(optimizers)
    orphans = {place: tensor for place, tensor in chosen.items() if id(tensor) not in owners}
    try:
        joining = membership.plan(orphans, tree, optimizers)
    except ValueError as reason:
        raise Refused(str(reason)) from None
    with _all_or_nothing(chosen.values()):
        for tensor in chosen.values():
            # What a gradient of before the freeze left behind would be added to the first new one.
            tensor.grad = None
            tensor.requires_grad_(True)
            if id(tensor) in owners:
                membership.begin(*owners[id(tensor)], tensor)
        membership.join(joining)
    if joining:
        names = dict.fromkeys(type(member.optimizer).__name__ for member in joining)
        return f"; {len(joining)} joined {' and '.join(names)}"
    if orphans:
        return (
            f"; {len(orphans)} belong to no optimizer, since there is none yet: they will not move until one owns them"
        )
    return ""


@contextmanager
def _all_or_nothing(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Put flags and gradients back if something raises half way."""
    before = [(tensor, tensor.requires_grad, tensor.grad) for tensor in tensors]
    try:
        yield
    except BaseException:
        for tensor, flag, gradient in before:
            if tensor.requires_grad is not flag:
                tensor.requires_grad_(flag)
            tensor.grad = gradient
        raise


def _extent(path: str, chosen: dict[int, torch.Tensor], tree: ModuleTree) -> str:
    size = sum(tree.parameters[place].count for place in chosen)
    tensors = "1 tensor" if len(chosen) == 1 else f"{len(chosen)} tensors"
    # What a pattern or a preset names was not named by a path, so no other path is news.
    is_path = any(within(name, path) for place in chosen for name in tree.parameters[place].names)
    elsewhere = [listed for place in chosen if is_path and not within(listed := tree.parameters[place].path, path)]
    tied = f" (tied to {', '.join(elsewhere[:3])}{' …' if len(elsewhere) > 3 else ''})" if elsewhere else ""
    return f"{tensors}, {size:,} parameter{'' if size == 1 else 's'}{tied}"
