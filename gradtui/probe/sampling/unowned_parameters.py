"""Find out which parameters the script trains itself, beside those of its optimizers. Training thread, in sampled steps.

A script may give its optimizer other tensors than the parameters: float32 copies, one flat buffer, a part of all elements. It
moves the gradients there and the new values back. Or an optimizer that torch does not know moves the parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.frozen import Bits, BitSample
from gradtui.probe.model import IndexMapping, ModuleTree, optimizer_membership
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import UnlistedTensorsTrain

_BYTES = 64 << 20
"""Bytes of parameters that are compared per sampled step, besides those of the last one."""
_CHANGES = 2
"""Comparisons that must find a change: a script may set values once."""
_OFTEN = 0.5
"""Share of the rounds of all optimizers in which it must do so: a copy of another model may get its values now and then."""
_SHARE = 0.5
"""Share of the compared elements that must move, so that others count as moved too: a step may be too small to change the few
elements of a bias in bfloat16."""


@dataclass(eq=False)
class _Bits:
    """What the comparisons of one tensor have found."""

    bits: Bits | None = None
    samples: int = 0
    comparisons: int = 0
    changes: int = 0

    is_moving: bool = False
    """It has changed often enough. Then it is not compared any more."""

    def compare(self, now: Bits, optimizers: int) -> None:
        if self.bits is not None and self.bits.kind == now.kind:
            self.comparisons += 1
            self.changes += self.bits.value != now.value
            self.is_moving = self.changes >= max(_CHANGES, _OFTEN * self.comparisons / optimizers)
        self.bits = now


class Unowned(NamedTuple):
    """Trainable parameters of no optimizer, by index."""

    moving: Set[int]
    """Those that something moves all the same."""
    undecided: Set[int]
    """Those of which this is not known yet."""
    written: Set[int]
    """Those that had other values in a later sample, if only once."""


NONE_UNOWNED = Unowned(frozenset(), frozenset(), frozenset())


class UnownedParameters:
    """Compares trainable parameters of no optimizer, and counts the tensors of optimizers in no module that get gradients."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock = context.emit, context.clock
        self._known: dict[int, _Bits] = {}
        self._under_way: BitSample[_Bits] | None = None
        self._next = 0
        self._gradients: ByIdentity[torch.Tensor, _Bits] = ByIdentity()
        """A few elements of the gradients of the tensors of optimizers in no module."""
        self._gradients_under_way: BitSample[_Bits] | None = None
        self._reported: Counter[int] = Counter()

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self._known = moved.of_parameters(self._known)

    def on_step_post(
        self,
        tree: ModuleTree,
        unowned: Sequence[tuple[int, torch.Tensor]],
        optimizers: Sequence[Optimizer | None],
        step: int,
    ) -> Unowned:
        """Return what is known of these trainable parameters of no optimizer. `optimizers` is in the order of the registry."""
        listed = [
            (index, tensor)
            for index, optimizer in enumerate(optimizers)
            for tensor in (optimizer_membership.parameters(optimizer) if optimizer is not None else ())
            if tree.owns(tensor) is None
        ]
        elements = self._count_gradients(listed, step)
        living = sum(each is not None for each in optimizers)
        self._compare(unowned, living)
        moving = {at for at, _ in unowned if self._known[at].is_moving}
        written = {at for at, _ in unowned if self._known[at].changes}
        compared = sum(each.numel() for at, each in unowned if self._known[at].comparisons >= _CHANGES)
        moved = sum(each.numel() for at, each in unowned if at in moving)
        has_copies = elements >= sum(each.numel() for _, each in unowned)
        if has_copies and moved > _SHARE * compared:
            return Unowned({at for at, _ in unowned}, set(), written)
        # Of several optimizers with parts of the parameters each steps before the script takes back the new values.
        needed = _CHANGES * living if listed else 0
        undecided = {at for at, _ in unowned if at not in moving and self._known[at].samples <= needed}
        return Unowned(moving, undecided, written)

    def _count_gradients(self, listed: Sequence[tuple[int, torch.Tensor]], step: int) -> int:
        """Report which of these tensors of optimizers get new gradients, and return the elements of those that do.

        A parameter that was replaced has no gradient, or keeps its last one.
        """
        for _, tensor in listed:
            if self._gradients.get(tensor) is None:
                self._gradients.set(tensor, _Bits())
        self._gradients_under_way = _arrived(self._gradients_under_way, 1)
        if self._gradients_under_way is None:
            known = ((self._gradients.get(tensor), tensor.grad if tensor.is_leaf else None) for _, tensor in listed)
            compared = [
                (each, grad) for each, grad in known if each is not None and grad is not None and not each.is_moving
            ]
            self._gradients_under_way = _arrived(BitSample(compared, few=True), 1)
        training = [
            (index, tensor) for index, tensor in listed if (each := self._gradients.get(tensor)) and each.changes
        ]
        counts = Counter(index for index, _ in training)
        for index in counts.keys() | self._reported.keys():
            if counts[index] != self._reported[index]:
                self._emit(UnlistedTensorsTrain(self._clock.at(), step, index, counts[index]))
        self._reported = counts
        return sum(tensor.numel() for _, tensor in training)

    def _compare(self, unowned: Sequence[tuple[int, torch.Tensor]], optimizers: int) -> None:
        known, self._known = self._known, {}
        for index, _ in unowned:
            self._known[index] = known.get(index) or _Bits()
            self._known[index].samples += 1
        self._under_way = _arrived(self._under_way, optimizers)
        if self._under_way is not None:
            return
        chosen, size = [], 0
        for index, tensor in sorted(unowned, key=lambda each: each[0] < self._next):
            if size >= _BYTES:
                break
            self._next = index + 1
            if not self._known[index].is_moving and type(tensor) in (nn.Parameter, torch.Tensor):
                chosen.append((self._known[index], tensor))
                size += tensor.nbytes
        self._under_way = _arrived(BitSample(chosen), optimizers)


def _arrived(sample: BitSample[_Bits] | None, optimizers: int) -> BitSample[_Bits] | None:
    """Compare bits with the last ones once they are on the host. Return those that are not."""
    if sample is None or not sample.is_there:
        return sample
    for known, now in sample.bits().items():
        known.compare(now, optimizers)
    return None
