"""Whether the tensors of a freeze really hold still: their version counters, and a checksum of their bits.

Every in-place write raises a tensor's version counter, except one through `.data` (weight clipping, averaged weights); that
is what the checksum is for. Runs on the training thread: counters are compared at every step (of many tensors in parts, where
nobody looks at the steps), and what was going on when one rose tells who wrote. A checksum reads the tensor once when it is
frozen and once when the freeze is verified or a person asks, and on a device the answer is fetched by an asynchronous copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from gradtui.probe.commands.checksums import ChecksumSample
from gradtui.probe.torch_private.cuda_captures import is_capturing
from gradtui.probe.torch_private.private_names import are_untouched, operations_are_observed, shares_version, version_of

VERIFY_STEPS = 10
"""A freeze is reported as holding after this many steps without a change."""

_LOOKS = 32
"""Many tensors are looked at in so many parts, one at each step, where nothing else is done at a step."""
_MIN_PART = 64


BETWEEN_STEPS = "written by the script between two steps, as a copy or an average of weights is"
WITHIN_STEP = "written while forward or backward ran"
SINCE_LAST_STEP = "written during the step or after it"
"""Nobody looked when the step ended."""
_PAST_COUNTERS = "written through .data"
_COLLECTED = "collected by a forward that could not be held, or written through .data"
_WRITTEN = "written to"


def optimizer_wrote(optimizer: object) -> str:
    """The cause of what has moved while this optimizer made its step: a frozen parameter has no gradient by then."""
    return f"written by {type(optimizer).__name__} in its step, though it has no gradient"


def within_steps(steps: int) -> str:
    """The cause of what has moved while only a part of many tensors was looked at in each step."""
    return f"written within the last {steps} steps"


@dataclass(eq=False)
class _Held:
    """One frozen tensor as it was."""

    tensor: weakref.ref[torch.Tensor]
    path: str
    version: int
    shared: bool
    """Its version counter is also that of other tensors, which may be trained."""
    seen: int
    """The version as it was looked at last."""
    cause: str | None = None
    """What was going on when its version was first seen to have changed."""
    told: bool = False
    """It has been told that this one moved."""
    enforced: bool = True
    """It is frozen again if the script makes it trainable. If not, it is only verified, and only while it is frozen."""


@dataclass(frozen=True)
class Verdict:
    """How the tensors of a freeze fared that are still there and still frozen."""

    tensors: int
    moved: tuple[str, ...]
    """Paths of those that were written to."""
    causes: tuple[str, ...] = field(default=(), compare=False)
    """Of each that moved what moved it."""


class FreezeVerifier:
    """The tensors of one freeze, and with them the running statistics of `statistics`, (path of a module, module)."""

    def __init__(
        self,
        command: int,
        step: int,
        tensors: Iterable[tuple[str, torch.Tensor]],
        statistics: Iterable[tuple[str, nn.Module]] = (),
    ) -> None:
        self.command = command
        self.since_step = step
        self.is_young = True
        """It has not been verified yet."""
        self._held = [_as_it_is(path, tensor) for path, tensor in tensors]
        self._statistics = [_as_it_is(path, buffer) for path, buffer in statistics_of(statistics)]
        held = () if operations_are_observed() else (*self._held, *self._statistics)
        self._taken = ChecksumSample((each, tensor) for each in held if (tensor := each.tensor()) is not None)
        """The checksums of the tensors as they were frozen."""
        self._by_id: dict[int, weakref.ref[torch.Tensor]] | None = None
        """The parameters that must stay frozen; None until somebody asks."""
        self._turn = 0
        """The part that is looked at next."""
        self._under_way: ChecksumSample[_Held] | None = None
        """Checksums of the tensors as they are now, which a device has not told yet."""
        self._looked()

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """These have been toggled again: they are no part of this freeze any more."""
        changed = {id(tensor) for tensor in tensors}
        self._held = [held for held in self._held if id(held.tensor()) not in changed]
        self._statistics = [held for held in self._statistics if id(held.tensor()) not in changed]
        self._looked()

    def leave_to_script(self, tensors: Iterable[torch.Tensor]) -> None:
        """The script may make these trainable. They are verified until it does."""
        left = {id(tensor) for tensor in tensors}
        for held in self._held:
            held.enforced = held.enforced and id(held.tensor()) not in left
        self._looked()

    def forget_what_the_script_trains(self) -> None:
        """Verify no longer what was left to the script and what it has made trainable."""
        trained = [
            tensor
            for held in self._held
            if not held.enforced and (tensor := held.tensor()) is not None and tensor.requires_grad
        ]
        if trained:
            self.forget(trained)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(path, parameter) of what is still there and must stay frozen."""
        return ((held.path, tensor) for held in self._held if held.enforced and (tensor := held.tensor()) is not None)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether this parameter is one of those that must stay frozen."""
        if self._by_id is None:
            self._by_id = {id(own): reference for reference in self._owned if (own := reference()) is not None}
        reference = self._by_id.get(id(tensor))
        return reference is not None and reference() is tensor

    @property
    def is_empty(self) -> bool:
        """Whether nothing of what was frozen is left."""
        return all(held.tensor() is None for held in self._held)

    def is_disturbed(self) -> bool:
        """Whether a flag was set back or anything was written to since the last look. Asked at every step."""
        return not are_untouched(self._references, self._seen)

    def is_part_disturbed(self) -> bool:
        """As `is_disturbed`, of the part whose turn it is; after `rounds` times each has been asked about."""
        if self.rounds == 1:
            return self.is_disturbed()
        begin = self._turn * self._part
        self._turn = (self._turn + 1) % self.rounds
        end = begin + self._part
        return not are_untouched(self._references[begin:end], self._seen[begin:end])

    def has_gradient(self) -> bool:
        """Whether one of its parameters has a gradient, which an optimizer would apply. Asked at every step."""
        for reference in self._owned:
            tensor = reference()
            if tensor is not None and tensor.grad is not None:
                return True
        return False

    def _looked(self) -> None:
        """As the tensors are now is how they are expected to be at the next step."""
        held = (*self._held, *self._statistics)
        self._by_id = None
        self._owned = [each.tensor for each in self._held if each.enforced]
        self._references = [each.tensor for each in held]
        self._seen: list[int | None] = [None if each.shared else each.seen for each in held]
        self._part = max(_MIN_PART, -(-len(held) // _LOOKS))
        self.rounds = max(1, -(-len(held) // self._part))
        """So many steps it takes to look at every tensor in parts."""

    def look(self, cause: str, of_statistics: str | None = None) -> None:
        """Note what has been written to since the last look, and for which cause; for statistics that may be another."""
        for listed, found in ((self._held, cause), (self._statistics, of_statistics or cause)):
            for held in listed:
                tensor = held.tensor()
                if tensor is not None and (version := version_of(tensor)) != held.seen:
                    held.seen = version
                    held.cause = held.cause or found
        self._looked()

    def collected(self) -> set[int]:
        """Ids of the running statistics that a forward has written all the same."""
        return {id(held.tensor()) for held in self._statistics if held.cause == WITHIN_STEP}

    def news(self, *, of_statistics: bool = False) -> Verdict | None:
        """What has moved since it was told last, by the counters alone; None where nothing has.

        `of_statistics` asks for those only.
        """
        asked = self._statistics if of_statistics else (*self._held, *self._statistics)
        moved = [held for held in asked if held.cause and not held.told and not held.shared]
        for held in moved:
            held.told = True
        return self._verdict(moved) if moved else None

    def verdict(self) -> Verdict | None:
        """How they fared; None while a device has not told yet: ask again at the next step."""
        if is_capturing():
            return None
        if self._under_way is None:
            self._under_way = self._read()
        if not (self._taken.is_there and self._under_way.is_there):
            return None
        is_same, self._under_way = self._taken.compare(self._under_way), None
        moved = []
        for held in (*self._held, *self._statistics):
            tensor = held.tensor()
            if tensor is None:
                continue
            written = version_of(tensor) != held.version and not (is_same.get(held) and shares_version(tensor))
            changed = is_same.get(held) is False
            if changed and version_of(tensor) == held.version:
                # Torch's own batch norm writes its statistics without raising their counters.
                held.cause = _COLLECTED if held in self._statistics else _PAST_COUNTERS
            if written or changed:
                held.told = True
                moved.append(held)
        return self._verdict(moved)

    def wait(self) -> Verdict:
        """As `verdict`, waiting for the device: a person has asked."""
        if self._under_way is None:
            self._under_way = self._read()
        self._taken.wait()
        self._under_way.wait()
        found = self.verdict()
        assert found is not None
        return found

    def _verdict(self, moved: list[_Held]) -> Verdict:
        tensors = sum(held.tensor() is not None for held in self._held)
        return Verdict(tensors, tuple(held.path for held in moved), tuple(held.cause or _WRITTEN for held in moved))

    def _read(self) -> ChecksumSample[_Held]:
        """The checksums of the tensors as they are now, of those that had one when they were frozen."""
        # A mode of the script's would be asked about operations of ours.
        held = () if operations_are_observed() else (*self._held, *self._statistics)
        living = ((each, tensor) for each in held if each in self._taken and (tensor := each.tensor()) is not None)
        return ChecksumSample(living)


def _as_it_is(path: str, tensor: torch.Tensor) -> _Held:
    version = version_of(tensor)
    return _Held(weakref.ref(tensor), path, version, shares_version(tensor), version)


def statistics_of(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[tuple[str, torch.Tensor]]:
    """(path, buffer) of the running statistics of these modules."""
    for path, module in modules:
        for name, buffer in module.named_buffers(path, recurse=False):
            if buffer.layout is torch.strided and not buffer.is_inference():
                yield name, buffer
