"""What the script does with the gradients of its first backwards, and how it makes its loss. Training thread only."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.model import ModuleTree
from gradtui.probe.steps.value_sample import ValueSample
from gradtui.probe.torch_private.private_names import leaf_of, version_of

_TENSORS, _MODELS = 4, 4
_MAX_ELEMENTS = 100_000
"""A gradient with more elements is not searched for a value that is not zero."""
_NODES = 32
_MAX_NODES = 1_000
"""Most operations and leaves of a loss that is made of numbers: one for each action of an episode, or sample of a batch."""
_BRANCHES = ("AddBackward0", "SubBackward0", "SumBackward0", "StackBackward0", "NegBackward0", "ToCopyBackward0")
_FACTORS = ("DivBackward0", "MulBackward0")


class NotedGradients:
    """Some trainable parameters with the version counters that they and their gradients had at a backward.

    A script that clears gradients between a backward and the step has used them if it wrote to parameters in between. From
    its first such call on, values are noted too.
    """

    def __init__(self) -> None:
        self._parameters: list[tuple[weakref.ref[torch.Tensor], int]] = []
        self._values: ValueSample | None = None
        self._gradients: list[tuple[weakref.ref[torch.Tensor], int, int]] = []
        self._clears = False
        self._under_way: list[tuple[ValueSample, ValueSample]] = []
        """Values at a backward, and at the call that cleared its gradients."""
        self._used = self._unused = 0

    def forget(self) -> None:
        """Drop what was noted, since calls have been missed."""
        self._parameters, self._values, self._gradients = [], None, []

    def before_backward(self, tree: ModuleTree) -> None:
        """Note the parameters."""
        tensors = _first_trainable(tree)
        self._parameters = [(weakref.ref(tensor), version_of(tensor)) for tensor in tensors]
        self._values = ValueSample(tensors) if self._clears else None

    def on_clear(self) -> None:
        """Compare the parameters where the script clears the gradients of a backward before a step has applied them."""
        self._clears = True
        alive = [(tensor, version) for reference, version in self._parameters if (tensor := reference()) is not None]
        if any(version_of(tensor) != version for tensor, version in alive):
            self._used += 1
        elif self._values is not None:
            self._under_way.append((self._values, self._values.again()))
        else:
            self._unused += 1

    @property
    def uses(self) -> tuple[int, int]:
        """How often the script wrote to parameters before it cleared gradients, and how often not, as far as values arrived."""
        pairs, self._under_way = self._under_way, []
        for before, after in pairs:
            if not (before.is_there and after.is_there):
                self._under_way.append((before, after))
            elif before.differs_from(after):
                self._used += 1
            else:
                self._unused += 1
        return self._used, self._unused

    def after_backward(self, tree: ModuleTree) -> None:
        """Note their gradients."""
        self._gradients = [
            (weakref.ref(tensor), id(gradient), version_of(gradient))
            for tensor in _first_trainable(tree)
            if tensor.is_leaf and (gradient := tensor.grad) is not None
        ]

    def is_replaced(self, clips: int) -> bool:
        """Return whether something besides `clips` clipping calls has written to the gradients, or has replaced them."""
        noted, self._gradients = self._gradients, []
        for reference, identity, version in noted:
            tensor = reference()
            gradient = tensor.grad if tensor is not None and tensor.is_leaf else None
            if gradient is not None and (id(gradient) != identity or version_of(gradient) - version > clips):
                return True
        return False


@dataclass
class _Applied:
    """Some gradients that a step has applied: the parameter, and id() and version counter of its gradient."""

    gradients: list[tuple[weakref.ref[torch.Tensor], int, int]]
    writes: int
    """Backwards and other writes before them."""


class AppliedGradients:
    """Compares gradients that a step has applied with those of the optimizer's next step: were they cleared in between?

    A gradient that is kept is the same tensor, never zero at a backward, and each backward and each clipping call between the
    steps has written to it once at most.
    """

    def __init__(self) -> None:
        self._applied: dict[int, _Applied] = {}
        """By index of the optimizer."""
        self._writes = 0
        self._counts: dict[int, list[int]] = {}
        """By index of the optimizer: how often gradients were kept, and how often not."""

    @property
    def is_waiting(self) -> bool:
        """Whether gradients wait for a comparison."""
        return bool(self._applied)

    @property
    def counts(self) -> tuple[tuple[int, int, int], ...]:
        """For each optimizer its index, how often its gradients were kept, and how often not."""
        return tuple((index, kept, cleared) for index, (kept, cleared) in self._counts.items())

    def forget(self) -> None:
        """Drop the gradients that wait, since calls have been missed."""
        self._applied.clear()

    def on_write(self, times: int = 1) -> None:
        """Record that clipping or unscaling writes to gradients."""
        self._writes += times

    def on_backward(self) -> None:
        """Record a backward, and which gradients have been cleared before it."""
        for index, applied in [*self._applied.items()]:
            if not any(map(_is_kept, applied.gradients)):
                del self._applied[index]
                self._count(index, kept=False)
        self._writes += 1

    def on_step(self, optimizer: Optimizer, index: int, *, again: bool) -> None:
        """Compare the gradients that a step of an optimizer has applied, and remember them if it will step `again`."""
        applied = self._applied.pop(index, None)
        if applied is not None:
            most = self._writes - applied.writes
            self._count(index, kept=any(_is_kept(each, most) for each in applied.gradients))
        if again:
            found = [
                (weakref.ref(tensor), id(gradient), version_of(gradient))
                for tensor in islice(_with_gradient(optimizer), _TENSORS)
                if tensor.is_leaf and (gradient := tensor.grad) is not None and not gradient.is_sparse
            ]
            if found:
                self._applied[index] = _Applied(found, self._writes)

    def _count(self, index: int, *, kept: bool) -> None:
        self._counts.setdefault(index, [0, 0])[not kept] += 1


def _is_kept(noted: tuple[weakref.ref[torch.Tensor], int, int], most: int | None = None) -> bool:
    """Return whether a gradient is the same tensor, not zero, and has been written to `most` times at most."""
    reference, identity, version = noted
    tensor = reference()
    gradient = tensor.grad if tensor is not None and tensor.is_leaf else None
    if gradient is None or id(gradient) != identity:
        return False
    if most is not None:
        return version_of(gradient) - version <= most
    return not _is_known_zero(gradient)


def _with_gradient(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            if isinstance(tensor, torch.Tensor) and tensor.is_leaf and tensor.grad is not None:
                yield tensor


def _is_known_zero(gradient: torch.Tensor) -> bool:
    """Return whether a gradient is zero; False where reading it would wait for a device."""
    if gradient.device.type != "cpu" or gradient.numel() > _MAX_ELEMENTS:
        return False
    return not bool(gradient.any())


def is_scaled(loss: Any, *, by_scaler: bool) -> bool:
    """Return whether a loss is a sum of quotients by, or products with, a number, besides the factor of a GradScaler.

    `loss` is its `grad_fn`. torch saves no gradient function for a number, so the second of `next_functions` is None.
    """
    waiting, seen, factors = [loss], 0, 0
    while waiting and seen < _NODES:
        node = waiting.pop()
        seen += 1
        following = [each for each, _ in node.next_functions]
        is_factor = node.name() in _FACTORS and None in following
        factors += is_factor
        if is_factor or node.name() in _BRANCHES:
            waiting += [each for each in following if each is not None]
    return factors > by_scaler


def leads_to_others_only(loss: Any, is_trained: Callable[[torch.Tensor], bool]) -> bool:
    """Return whether a loss is computed from leaves, and `is_trained` of none of them. `loss` is its `grad_fn`.

    False for a graph of many operations, which is not a loss that a script has made of numbers.
    """
    waiting, seen, leaves = [loss], {loss}, 0
    while waiting:
        node = waiting.pop()
        leaf = leaf_of(node)
        if leaf is not None and is_trained(leaf):
            return False
        leaves += leaf is not None
        following = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= following
        waiting += following
        if len(seen) > _MAX_NODES:
            return False
    return leaves > 0


def _first_trainable(tree: ModuleTree) -> list[torch.Tensor]:
    """Return the first trainable parameters of each of the first models."""
    return [each for model in tree.models[:_MODELS] for each in islice(_trainable(tree, model.root), _TENSORS)]


def _trainable(tree: ModuleTree, root: int) -> Iterator[torch.Tensor]:
    owners, roots = tree.owners, tree.roots
    for index in range(bisect_left(owners, root), len(owners)):
        if roots[owners[index]] != root:
            return
        tensor = tree.parameter_refs[index]()
        if tensor is not None and tensor.requires_grad and not tensor.is_inference():
            yield tensor
