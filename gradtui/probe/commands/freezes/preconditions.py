"""Refuse freezes and unfreezes that would break a run, with the reason in words. Training thread only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import torch
from torch.optim import Optimizer

from gradtui.probe.commands.freezes.change import Change, Training
from gradtui.probe.commands.wrappers import UNSUPPORTED
from gradtui.probe.model import ModuleTree, Owners
from gradtui.probe.model import optimizer_membership as membership
from gradtui.probe.runtime import CommandRefused
from gradtui.probe.torch_private.private_names import has_accumulation_hooks, is_lazy
from gradtui.run.text import refusals

_PARALLEL = "DistributedDataParallel"


def check(change: Change, tree: ModuleTree, *, leaves_others: bool = False) -> None:
    """Refuse a freeze or an unfreeze that would break the run, as far as that is known before. Raises `CommandRefused`.

    `leaves_others` says that other parameters are unfrozen with this freeze.
    """
    chosen, training = change.parameters, change.training
    refuse_data_parallel(chosen, tree, training.trained, trainable=change.command.trainable)
    refuse_special(chosen, tree)
    if change.command.trainable:
        refuse_untrainable(chosen, tree, change.owners)
        return
    if training.by_hand:
        # A freeze removes the gradient, which code such as `p -= lr * p.grad` does not expect.
        raise CommandRefused(refusals.UPDATED_BY_SCRIPT)
    refuse_lbfgs(chosen, training.optimizers)
    if not leaves_others:
        refuse_to_end_training(chosen, tree, training)


def refuse_data_parallel(
    chosen: Mapping[int, torch.Tensor], tree: ModuleTree, trained: Set[int], *, trainable: bool
) -> None:
    """Refuse to change what a data-parallel wrapper assumes of its parameters. See `ranks` for several ranks in general.

    `DistributedDataParallel` registers the parameters that are trainable at its construction. With `find_unused_parameters` it
    does not wait for those that get no gradient, unless the graph is static; the gradient of one that it did not register is
    not combined over the ranks (PyTorch: DistributedDataParallel, "Parameters"). `fully_shard` (FSDP2) reads `requires_grad` in
    each backward.

    Args:
        chosen: the parameters to change, by index.
        tree: the models.
        trained: indexes of the parameters that commands have frozen and that trained before.
        trainable: whether they are to be trainable.
    """
    wrapper = tree.class_among((*UNSUPPORTED, _PARALLEL))
    if wrapper is None:
        return
    if wrapper != _PARALLEL:
        raise CommandRefused(refusals.change_under(wrapper))
    changed = {id(tensor): index for index, tensor in chosen.items()}
    for _, module in tree.live_modules():
        if _PARALLEL not in {kind.__name__ for kind in type(module).__mro__}:
            continue
        within = [changed[id(tensor)] for tensor in module.parameters() if id(tensor) in changed]
        if within and getattr(module, "static_graph", False):
            raise CommandRefused(refusals.FREEZE_UNDER_STATIC_GRAPH)
        if within and not getattr(module, "find_unused_parameters", False):
            raise CommandRefused(refusals.FREEZE_UNDER_DDP)
        unknown = [index for index in within if index not in trained] if trainable else []
        if unknown:
            raise CommandRefused(refusals.unknown_to_ddp(tree.parameters[unknown[0]].path))


def refuse_special(chosen: Mapping[int, torch.Tensor], tree: ModuleTree) -> None:
    """Refuse tensors whose `requires_grad` autograd would not let gradtui change."""
    for index, tensor in chosen.items():
        path = tree.parameters[index].path
        if is_lazy(tensor):
            raise CommandRefused(refusals.lazy_parameter(path))
        if not tensor.is_leaf:
            raise CommandRefused(refusals.computed_parameter(path))
        if tensor.is_inference():
            raise CommandRefused(refusals.inference_parameter(path))


def refuse_untrainable(chosen: Mapping[int, torch.Tensor], tree: ModuleTree, owners: Owners) -> None:
    """Refuse tensors that cannot have a gradient, and those whose optimizer would raise an error at their gradient."""
    for index, tensor in chosen.items():
        path = tree.parameters[index].path
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise CommandRefused(refusals.not_floating_point(path, tree.parameters[index].dtype))
        if id(tensor) in owners:
            sparse = membership.makes_sparse_gradients(index, tree)
            reason = membership.objection(*owners[id(tensor)], tensor, sparse=sparse)
            if reason is not None:
                raise CommandRefused(refusals.owner_cannot_train(path, reason))


def refuse_joining_in_backward(orphans: Mapping[int, torch.Tensor], tree: ModuleTree, training: Training) -> None:
    """Refuse to add parameters to an optimizer that steps within backward, which still needs the values it would change."""
    if not orphans:
        return
    name = tree.parameters[next(iter(orphans))].path
    if training.in_backward:
        raise CommandRefused(refusals.steps_in_backward(name))
    owned = (tensor for optimizer in training.optimizers for tensor in membership.parameters(optimizer))
    if training.in_backward is None and any(map(has_accumulation_hooks, owned)):
        raise CommandRefused(refusals.may_step_in_backward(name))


def refuse_lbfgs(chosen: Mapping[int, torch.Tensor], optimizers: Sequence[Optimizer]) -> None:
    """Refuse to freeze parameters of LBFGS, which treats all its parameters as one vector and keeps a history of it."""
    of_one_vector = [optimizer for optimizer in optimizers if isinstance(optimizer, torch.optim.LBFGS)]
    if of_one_vector and not membership.owners(of_one_vector).keys().isdisjoint(map(id, chosen.values())):
        raise CommandRefused(refusals.LBFGS_MOVES_FROZEN)


def refuse_to_end_training(chosen: Mapping[int, torch.Tensor], tree: ModuleTree, training: Training) -> None:
    """Refuse a freeze that leaves backward nothing to compute, or an optimizer with a GradScaler nothing to update.

    Parameters that no optimizer owns, that backward does not reach, or that are untried do not count as left.
    """
    frozen = {id(tensor) for tensor in chosen.values()}
    optimizers = training.optimizers
    candidates = [tensor for optimizer in optimizers for tensor in membership.parameters(optimizer)]
    candidates = candidates or [tensor for _, tensor in tree.live_parameters()]
    rest = (tensor for tensor in candidates if id(tensor) not in frozen)
    hint = refusals.JUST_UNFROZEN if training.untried else ""
    if not _is_any_reached(rest, tree, training) and _is_any_reached(chosen.values(), tree, training):
        raise CommandRefused(refusals.NOTHING_TRAINS + hint)
    groups: list[tuple[Sequence[Optimizer], str]] = []
    if training.scaled:
        groups += [([optimizer], refusals.SCALER_FAILS) for optimizer in optimizers]
    if len(training.in_use) > 1:
        groups += [(together, refusals.BACKWARD_MAY_FAIL) for together in training.in_use]
    for together, why in groups:
        owned = [tensor for optimizer in together for tensor in membership.parameters(optimizer)]
        rest = (tensor for tensor in owned if id(tensor) not in frozen)
        if not _is_any_reached(rest, tree, training) and _is_any_reached(owned, tree, training):
            names = " and ".join(dict.fromkeys(type(optimizer).__name__ for optimizer in together))
            raise CommandRefused(refusals.left_without_parameter(names, why) + hint)


def _is_any_reached(tensors: Iterable[torch.Tensor], tree: ModuleTree, training: Training) -> bool:
    return any(
        (index := tree.owns(tensor)) not in training.unreached and index not in training.untried
        for tensor in tensors
        if tensor.requires_grad
    )
