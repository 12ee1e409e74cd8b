"""Find the optimizer that owns a parameter, and add a parameter without an owner to an optimizer safely.

Runs on the training thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.model.module_tree import ModuleTree
from gradtui.probe.runtime import CommandRefused
from gradtui.run.text import refusals

_TAKE_SPARSE = ("SGD", "Adagrad", "SparseAdam")
"""Those of torch's optimizers that do not raise an error at a sparse gradient."""
_REFUSE_OTHERS = ("LBFGS", "Muon", "SparseAdam")
"""Those of torch's optimizers that raise an error at some dense and real gradients."""
_TAKE_ALL_DENSE = frozenset(
    kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and name not in _REFUSE_OTHERS
)
_REFUSE_COMPLEX = ("Adafactor", "Muon", "SparseAdam")
"""Those of torch's optimizers that raise an error at a complex parameter."""


Owners = Mapping[int, tuple[Optimizer, dict[str, Any]]]
"""The optimizer and the group of each owned parameter, by the id of the parameter. Valid as long as the parameters live."""


class Membership(NamedTuple):
    """A planned addition of a parameter to an optimizer that does not own it yet."""

    optimizer: Optimizer
    group: dict[str, Any]
    tensor: torch.Tensor
    name: str
    """The path within its model, as in the script's own `named_parameters`."""


def parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Yield every parameter that an optimizer owns."""
    for group in optimizer.param_groups:
        yield from group["params"]


def owners(optimizers: Iterable[Optimizer]) -> Owners:
    """Return the optimizer and the group of each parameter of these optimizers: of several, the first one."""
    found: dict[int, tuple[Optimizer, dict[str, Any]]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                found.setdefault(id(tensor), (optimizer, group))
    return found


def positions(optimizers: Iterable[Optimizer]) -> dict[int, tuple[int, int]]:
    """Map the id of each owned parameter to the index of its optimizer and that of its group. Valid as long as they live."""
    found: dict[int, tuple[int, int]] = {}
    for index, optimizer in enumerate(optimizers):
        for group, settings in enumerate(optimizer.param_groups):
            for tensor in settings["params"]:
                found.setdefault(id(tensor), (index, group))
    return found


def objection(optimizer: Optimizer, group: Mapping[str, Any], tensor: torch.Tensor, *, sparse: bool) -> str | None:
    """Return why a torch optimizer's next step would raise an error if this parameter had a gradient; None if not.

    `sparse` says that the gradient would be a sparse tensor. For optimizers that are not torch's nothing is known.
    """
    if type(optimizer) in _TAKE_ALL_DENSE and not sparse and not tensor.is_complex():
        return None
    # Some of torch's classes have the module `torch.optim`, others a module below it.
    torchs = (base for base in type(optimizer).__mro__ if f"{base.__module__}.".startswith("torch.optim."))
    kind = next((base.__name__ for base in torchs), "")
    if kind == "LBFGS":
        return refusals.LBFGS_HISTORY
    if kind == "Muon" and tensor.ndim != 2:
        return refusals.only_matrices(tensor.ndim)
    if kind == "SparseAdam" and not sparse:
        return refusals.ONLY_SPARSE
    if tensor.is_complex() and (kind in _REFUSE_COMPLEX or group.get("fused")):
        return refusals.no_complex(kind)
    if sparse and kind not in ("", "Optimizer"):
        if kind not in _TAKE_SPARSE or group.get("fused"):
            return refusals.no_sparse(kind)
        if group.get("weight_decay"):
            return refusals.no_sparse_with_decay(kind)
    return None


def makes_sparse_gradients(index: int, tree: ModuleTree) -> bool:
    """Return whether the parameter with this index is the weight of an embedding that was constructed with `sparse=True`."""
    module = tree.module_refs[tree.parameters[index].module]()
    return getattr(module, "sparse", False) is True and tree.parameters[index].path.endswith("weight")


def plan(orphans: Mapping[int, torch.Tensor], tree: ModuleTree, optimizers: Sequence[Optimizer]) -> list[Membership]:
    """Choose a group for each parameter without an optimizer: that of its nearest sibling.

    Only groups that can hold the parameter are considered.

    Changes nothing. Empty without optimizers. Raises `CommandRefused` where no optimizer can hold one of them.
    """
    if not orphans:
        return []
    ranked = [_Group(optimizer, group, tree) for optimizer in optimizers for group in optimizer.param_groups]
    planned = []
    for index, tensor in orphans.items() if ranked else ():
        sparse = makes_sparse_gradients(index, tree)
        objections = [objection(entry.optimizer, entry.group, tensor, sparse=sparse) for entry in ranked]
        fitting = [entry for entry, reason in zip(ranked, objections) if reason is None]
        path = tree.parameters[index].path
        if not fitting:
            raise CommandRefused(refusals.no_optimizer_for(path, objections[0]))
        nearest = _nearest(fitting, path, tensor)
        planned.append(Membership(nearest.optimizer, nearest.group, tensor, _name_in_model(index, tree)))
    return planned


def append(member: Membership) -> None:
    """Append a parameter to its group.

    It extends an existing group, because `add_param_group` breaks LR schedulers that counted the groups when they were
    constructed (LambdaLR, OneCycleLR, SequentialLR and others compare lengths strictly).
    """
    member.group["params"].append(member.tensor)
    if "param_names" in member.group:
        member.group["param_names"].append(member.name)


def begin(optimizer: Optimizer, group: Mapping[str, Any], tensor: torch.Tensor) -> None:
    """Create the state without which the next step would raise an error for a parameter whose first gradient comes late.

    Most optimizers create it when they need it. Two do not: Adagrad, in some versions, creates it only in its constructor,
    and fused SGD creates momentum buffers only when no parameter of the group has one yet.
    """
    is_adagrad = isinstance(optimizer, torch.optim.Adagrad)
    is_fused_sgd = isinstance(optimizer, torch.optim.SGD) and group.get("fused") and group.get("momentum")
    # Tested before the state is read, which calls torch's Python code.
    state = optimizer.state.get(tensor, {}) if is_adagrad or is_fused_sgd else {}
    if is_adagrad and not state:
        fused = bool(group.get("fused"))
        count = torch.float64 if torch.get_default_dtype() is torch.float64 and not fused else torch.float32
        start = optimizer.defaults.get("initial_accumulator_value", 0.0)
        optimizer.state[tensor] = {
            "step": torch.zeros((), dtype=count, device=tensor.device if fused else "cpu"),
            "sum": torch.full_like(tensor.detach(), complex(start, start) if tensor.is_complex() else start),
        }
    if is_fused_sgd:
        has_begun = any(optimizer.state.get(own, {}).get("momentum_buffer") is not None for own in group["params"])
        if has_begun and state.get("momentum_buffer") is None:
            # The first gradient is added to this; without dampening the buffer would have begun with that gradient.
            optimizer.state[tensor]["momentum_buffer"] = torch.zeros_like(tensor.detach())


class _Group:
    def __init__(self, optimizer: Optimizer, group: dict[str, Any], tree: ModuleTree) -> None:
        self.optimizer = optimizer
        self.group = group
        self._starts: set[str] = set()
        """Every prefix of a member's path."""
        self._matrices = 0
        """The number of members with more than one dimension."""
        self._known = 0
        for tensor in group["params"]:
            index = tree.owns(tensor)
            if index is not None:
                self._starts.update(_starts(tree.parameters[index].path))
                self._matrices += tensor.ndim > 1
                self._known += 1
        rate = group.get("lr")
        self.rate = (id(optimizer), rate if isinstance(rate, float) else id(rate))
        """Equal for groups of one optimizer that have the same learning rate."""
        self.decay = group.get("weight_decay")

    def nearness(self, path: str) -> tuple[int, int]:
        """Return the path components shared with the nearest member, -1 if no member is of a known model; and how many are."""
        return sum(start in self._starts for start in _starts(path)) if self._known else -1, self._known

    def has_alike(self, tensor: torch.Tensor) -> bool:
        """Return whether any member is of the same kind: a matrix (or more dimensions), or a vector (or fewer)."""
        return (self._matrices if tensor.ndim > 1 else self._known - self._matrices) > 0


def _nearest(groups: Sequence[_Group], path: str, tensor: torch.Tensor) -> _Group:
    """Return the group with the learning rate of the nearest sibling.

    If groups with that rate differ in weight decay, it is one with members of the same kind: scripts group matrices and
    vectors apart for weight decay.
    """
    rate = max(groups, key=lambda group: group.nearness(path)).rate
    equal = [group for group in groups if group.rate == rate]
    if len({group.decay for group in equal}) > 1:
        equal = [group for group in equal if group.has_alike(tensor)] or equal
    return max(equal, key=lambda group: group.nearness(path))


def _starts(path: str) -> Iterator[str]:
    return itertools.accumulate(path.split("."), lambda before, part: f"{before}.{part}")


def _name_in_model(index: int, tree: ModuleTree) -> str:
    info = tree.parameters[index]
    prefix = tree.modules[tree.roots[info.module]].path
    return info.path.removeprefix(f"{prefix}.") if prefix else info.path
