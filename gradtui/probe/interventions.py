"""The only code that changes the script's objects: commands, applied by the training thread at a step boundary.

A boundary is the first training forward after an executed step: gradients are not being accumulated, nothing is between
backward and step, no closure is running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from gradtui.probe import optimizer_membership as membership
from gradtui.probe.module_tree import ModuleTree
from gradtui.probe.torch_private import is_lazy, version_of
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.vocabulary import ParameterInfo

VERIFY_STEPS = 10
"""A freeze is reported as holding after this many steps without a change."""


class Refused(Exception):  # noqa: N818 - it is an answer, not an error
    """A command that would break the run or that cannot be carried out; the message says why."""


@dataclass
class Watch:
    """The tensors of one freeze and the version counters they had."""

    command: int
    since_step: int
    versions: dict[int, int]
    """Parameter index -> version counter."""


@dataclass(frozen=True)
class Applied:
    """What a command changed."""

    text: str
    parameters: tuple[int, ...]


def set_trainable(command: SetTrainable, tree: ModuleTree, optimizers: Sequence[Optimizer], *, scaled: bool) -> Applied:
    """Freeze or unfreeze what `command.path` names. Raises `Refused` and changes nothing where that would break the run.

    `scaled` says that the script uses a GradScaler.
    """
    _refuse_wrapped(tree)
    indices = _selected(command.path, tree)
    live = {index: tensor for index, tensor in tree.live_parameters() if index in indices}
    chosen = {index: tensor for index, tensor in live.items() if tensor.requires_grad is not command.trainable}
    if not chosen:
        raise Refused(f"{command.path or 'the model'} is already {'trainable' if command.trainable else 'frozen'}")
    if command.trainable:
        return _unfreeze(command.path, chosen, tree, optimizers)
    _refuse_last_trainable(chosen, tree, optimizers, scaled=scaled)
    return _freeze(command.path, chosen, tree, optimizers)


def _selected(path: str, tree: ModuleTree) -> frozenset[int]:
    for module in tree.modules:
        if module.path == path:
            return frozenset(range(module.first_parameter, module.first_parameter + module.subtree_parameters))
    for index, parameter in enumerate(tree.parameters):
        if path in parameter.names:
            return frozenset((index,))
    raise Refused(f"there is no module or parameter {path!r}")


def _freeze(path: str, chosen: dict[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer]) -> Applied:
    for tensor in chosen.values():
        _refuse_special(tensor)
    _refuse_lbfgs(chosen, optimizers, "it moves frozen parameters too, along a direction it remembers")
    for tensor in chosen.values():
        tensor.requires_grad_(False)
        # A zero or stale gradient still moves a parameter under momentum or weight decay; None does not.
        tensor.grad = None
    return Applied(_sentence("froze", path, chosen, tree), tuple(chosen))


def _unfreeze(path: str, chosen: dict[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer]) -> Applied:
    for tensor in chosen.values():
        _refuse_special(tensor)
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise Refused(f"only floating point tensors can have a gradient, and one here is {tensor.dtype}")
    orphans = {index: tensor for index, tensor in chosen.items() if not membership.owned(tensor, optimizers)}
    _refuse_lbfgs(chosen, optimizers, "it remembers directions of the parameters it began with")
    joined = membership.join(orphans, tree, optimizers) if orphans else None
    for tensor in chosen.values():
        # What a gradient of before the freeze left behind would be added to the first new one.
        tensor.grad = None
        tensor.requires_grad_(True)
    text = _sentence("unfroze", path, chosen, tree)
    if joined is not None:
        text += f"; {len(orphans)} joined {joined}"
    elif orphans:
        text += (
            f"; {len(orphans)} belong to no optimizer, since there is none yet: they will not move until one owns them"
        )
    return Applied(text, tuple(chosen))


def _refuse_special(tensor: torch.Tensor) -> None:
    if not tensor.is_leaf:
        raise Refused("a tensor here is computed from others (a parametrization): toggle the originals it is made from")
    if is_lazy(tensor):
        raise Refused("a parameter here has no shape yet (a lazy module): it can be toggled after the first forward")


def _refuse_lbfgs(chosen: dict[int, torch.Tensor], optimizers: Sequence[Optimizer], why: str) -> None:
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.LBFGS):
            continue
        if len(optimizers) == 1 or any(membership.owned(tensor, [optimizer]) for tensor in chosen.values()):
            raise Refused(f"LBFGS cannot be changed while it runs: {why}")


def _refuse_wrapped(tree: ModuleTree) -> None:
    for model in tree.models:
        if model.type_name == "DistributedDataParallel" or model.type_name.startswith("FSDP"):
            raise Refused(
                f"under {model.type_name} a toggle must happen on all ranks at once, which is not possible yet"
            )


def _refuse_last_trainable(
    chosen: dict[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer], *, scaled: bool
) -> None:
    frozen = {id(tensor) for tensor in chosen.values()}
    left = [tensor for _, tensor in tree.live_parameters() if tensor.requires_grad and id(tensor) not in frozen]
    if not left:
        raise Refused(
            "this would freeze the last trainable parameter: backward would have nothing to compute and raise an error"
        )
    for optimizer in optimizers:
        own = [tensor for tensor in membership.parameters(optimizer) if tensor.requires_grad]
        if not own or any(id(tensor) not in frozen for tensor in own):
            continue
        name = type(optimizer).__name__
        if scaled:
            raise Refused(f"this would leave {name} without a trainable parameter, and GradScaler would raise an error")
        if len(optimizers) > 1:
            raise Refused(f"this would leave {name} without a trainable parameter: its loss may have nothing to train")


def _sentence(verb: str, path: str, chosen: dict[int, torch.Tensor], tree: ModuleTree) -> str:
    size = sum(tree.parameters[index].count for index in chosen)
    tensors = "1 tensor" if len(chosen) == 1 else f"{len(chosen)} tensors"
    return f"{verb} {path or 'the model'}: {tensors}, {size:,} parameters"


def watch(command: int, step: int, parameters: Sequence[int], tree: ModuleTree) -> Watch:
    """Begin to watch the tensors of a freeze."""
    wanted = set(parameters)
    versions = {index: version_of(tensor) for index, tensor in tree.live_parameters() if index in wanted}
    return Watch(command, step, versions)


def moved(watched: Watch, tree: ModuleTree) -> list[ParameterInfo]:
    """Those of the watched tensors, still frozen, that were written to since."""
    return [
        tree.parameters[index]
        for index, version in watched.versions.items()
        if (tensor := tree.parameter_refs[index]()) is not None
        and not tensor.requires_grad
        and version_of(tensor) != version
    ]
