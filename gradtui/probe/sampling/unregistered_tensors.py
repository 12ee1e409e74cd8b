"""Find tensors that get a gradient step after step, although no model and no optimizer has them. Training thread.

Such as `nn.Parameter(...).to(...)`, whose result is no parameter, or a tensor attribute with `requires_grad=True`. A tensor
that the script updates by itself has other values in a later sampled step. One whose gradient the script asks for by
`torch.autograd.grad`, or that is an argument of a model, gets its gradient on purpose.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.autograd import GraphSummary
from gradtui.probe.frozen import Bits, BitSample
from gradtui.probe.model import Held, ModuleTree, held_objects, optimizer_membership
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import (
    GraphNode,
    has_accumulation_hooks,
    leaf_of,
    storage_key,
    version_of,
)
from gradtui.protocol.events import UnregisteredTensor, UnregisteredTensorsFound

_SAMPLES, _STEPS = 3, 8
"""The sampled steps with a gradient, and the steps between the first and the last, after which a tensor is reported."""
_MAX = 64
"""Maximum number of tensors that are followed."""
_NODES = 200
"""Operations between a tensor and the result of it that a holder has."""
_PLAIN = (torch.Tensor, nn.Parameter)


@dataclass
class _Followed:
    tensor: weakref.ref[torch.Tensor]
    version: int
    since: int
    is_joined: bool
    samples: int = 0
    bits: Bits | None = None
    """A few of its values in the first sampled step."""
    has_gradient: bool = False
    """Whether an element of its gradient that was read is not 0."""
    found: UnregisteredTensor | None = None


@dataclass
class _Sample:
    """A few elements of the tensors and of their gradients after a step, which may still be on their way to the host."""

    bits: BitSample[tuple[int, bool]]
    """By the id of a tensor, and whether the elements are those of its gradient."""
    step: int


class UnregisteredTensors:
    """Follows the unknown leaves of the graphs of sampled steps."""

    def __init__(self, context: ProbeContext, batches: Callable[[], Iterable[Any]]) -> None:
        """Create it with a function that returns the living storages of the present step's batches."""
        self._emit, self._clock, self._batches = context.emit, context.clock, batches
        self._reached: dict[int, tuple[weakref.ref[torch.Tensor], bool]] = {}
        """By id: the leaves that backwards of the present step reach, and whether they are joined with the models'."""
        self._followed: dict[int, _Followed] = {}
        self._excluded: ByIdentity[torch.Tensor, bool] = ByIdentity()
        """The tensors with which the script itself does something."""
        self._sample: _Sample | None = None
        self._reported: tuple[UnregisteredTensor, ...] = ()
        self.is_wanted = False
        """Whether there is anything to do after a sampled step. A plain attribute, since each sampled step reads it."""

    def on_gradient(self, inputs: object) -> None:
        """Record the tensors whose gradients `torch.autograd.grad` returns."""
        for each in inputs if isinstance(inputs, Sequence) else ():
            if isinstance(each, torch.Tensor) and each.grad_fn is None:
                self._excluded.set(each, True)

    def on_backward(self, facts: GraphSummary) -> None:
        """Record the leaves that a backward of a sampled step is about to reach."""
        for reference, is_joined in facts.unknown_leaves:
            leaf = reference()
            if leaf is not None and len(self._reached) < _MAX:
                self._reached[id(leaf)] = reference, is_joined
                self.is_wanted = True

    def on_step_post(
        self, tree: ModuleTree, optimizers: Iterable[Optimizer], step: int, of_modules: Container[int]
    ) -> None:
        """Compare the reached leaves with what they were, and report those that nothing updates.

        `of_modules` has the ids of the parameters of modules that run without being registered.
        """
        reached, self._reached = self._reached, {}
        self._compare()
        owned = optimizer_membership.owners(optimizers)
        batches = {storage._cdata for storage in self._batches()}  # noqa: SLF001 - as `storage_key`
        read: list[tuple[tuple[int, bool], torch.Tensor]] = []
        for key, (reference, is_joined) in reached.items():
            leaf = reference()
            is_known = key in owned or key in of_modules or tree.owns(leaf) is not None
            if leaf is None or leaf.grad is None or is_known or self._is_used(leaf, batches):
                self._followed.pop(key, None)
                continue
            known = self._followed.get(key)
            if known is None or known.tensor() is not leaf:
                known = self._followed[key] = _Followed(reference, version_of(leaf), step, is_joined)
            if known.version != version_of(leaf):
                self._exclude(key)
                continue
            read += [((key, False), leaf.detach()), ((key, True), leaf.grad.detach())]
        if self._sample is None and read:
            self._sample = _Sample(BitSample(read, few=True), step)
            self._compare()
        self._report(tree, step)
        self.is_wanted = bool(self._followed)

    def _is_used(self, leaf: torch.Tensor, batches: set[int]) -> bool:
        hooks = getattr(leaf, "_backward_hooks", None) or has_accumulation_hooks(leaf)
        is_plain = type(leaf) in _PLAIN and not hooks
        return not is_plain or bool(self._excluded.get(leaf)) or storage_key(leaf) in batches

    def _exclude(self, key: int) -> None:
        known = self._followed.pop(key)
        if (leaf := known.tensor()) is not None:
            self._excluded.set(leaf, True)

    def _compare(self) -> None:
        """Compare the newest elements with the first ones, once they are on the host."""
        if self._sample is None or not self._sample.bits.is_there:
            return
        (bits, step), self._sample = (self._sample.bits.bits(), self._sample.step), None
        for key, known in [*self._followed.items()]:
            value, gradient = bits.get((key, False)), bits.get((key, True))
            if value is None or step < known.since:
                continue
            if known.bits is not None and known.bits != value:
                self._exclude(key)
                continue
            known.bits, known.samples = value, known.samples + 1
            known.has_gradient |= gradient is not None and any(gradient.value)

    def _report(self, tree: ModuleTree, step: int) -> None:
        new: dict[int, _Followed] = {}
        for key, each in [*self._followed.items()]:
            if each.tensor() is None:
                del self._followed[key]
            elif each.found is None and each.samples >= _SAMPLES and step - each.since >= _STEPS and each.has_gradient:
                new[key] = each
        if new:
            holders = _holders(tree, new)
            for key, each in new.items():
                if (leaf := each.tensor()) is not None:
                    each.found = _described(leaf, each, *holders.get(key, (None, None)))
        found = tuple(each.found for each in self._followed.values() if each.found is not None)
        if found != self._reported:
            self._reported = found
            self._emit(UnregisteredTensorsFound(self._clock.at(), step, found))


def _described(leaf: torch.Tensor, known: _Followed, held: Held | None, operation: str | None) -> UnregisteredTensor:
    return UnregisteredTensor(
        held.name if held is not None else None,
        held is not None and held.of_module,
        operation,
        isinstance(leaf, nn.Parameter),
        known.is_joined,
        leaf.numel(),
        known.since,
    )


def _holders(tree: ModuleTree, wanted: Container[int]) -> dict[int, tuple[Held, str | None]]:
    """Return what holds each of these leaves, or else the result of an operation on nothing but them, with that operation."""
    found: dict[int, tuple[Held, str | None]] = {}
    for held in held_objects(tree):
        if not issubclass(type(held.value), torch.Tensor):
            continue
        if id(held.value) in wanted:
            if found.get(id(held.value), (held, ""))[1] is not None:
                found[id(held.value)] = held, None
            continue
        # Autograd forbids access to it for a view that was written to.
        with contextlib.suppress(Exception):
            node = held.value.grad_fn
            for key in _leaves(node, wanted) if node is not None else ():
                found.setdefault(key, (held, str(node.name())))
    return found


def _leaves(top: GraphNode, wanted: Container[int]) -> set[int]:
    """Return the ids of the leaves of a small graph; none if it has others than those wanted."""
    seen, waiting, leaves = {top}, [top], set()
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = leaf_of(node)
            if leaf is None:
                waiting.append(node)
            elif id(leaf) in wanted:
                leaves.add(id(leaf))
            else:
                return set()
            if len(seen) > _NODES:
                return set()
    return leaves
