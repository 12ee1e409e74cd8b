"""Verify that the tensors of a freeze do not change, by their version counters and by a checksum of their bits.

Runs on the training thread. Counters are compared at every step. If many tensors are frozen and the steps are not checked
otherwise, each step compares a part of them. What ran when a counter rose identifies the writer. A checksum reads the tensor
once when it is frozen, and once when the freeze is verified or the user requests it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import field

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.frozen.bits import BitSample
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.private_names import (
    are_untouched,
    gradient_of,
    operations_are_observed,
    shares_version,
    version_of,
)

VERIFY_STEPS = 10
"""A freeze is reported as holding after this many steps without a change."""

_PARTS = 32
"""Many tensors are checked in at most this many parts, one per step, at steps that are not checked otherwise."""
_MIN_PART = 64

BETWEEN_STEPS = "written by the script between two steps, as a copy or an average of weights is"
WITHIN_STEP = "written while forward or backward ran"
SINCE_LAST_STEP = "written during the step or after it"
"""No check ran when the step ended."""
_PAST_COUNTERS = "written through .data"
_COLLECTED = "updated by a forward that could not be kept from it, or written through .data"
_WRITTEN = "written to"


def optimizer_wrote(optimizer: object) -> str:
    """Return the cause of a write during a step of this optimizer, when a frozen parameter has no gradient."""
    return f"written by {type(optimizer).__name__} in its step, though it has no gradient"


def within_steps(steps: int) -> str:
    """Return the cause of a write during steps that each checked only a part of many tensors."""
    return f"written within the last {steps} steps"


class _Held:
    """One frozen tensor: a parameter, or a running statistic."""

    def __init__(self, path: str, tensor: torch.Tensor, *, is_statistic: bool = False) -> None:
        self.path, self.is_statistic = path, is_statistic
        self.tensor = weakref.ref(tensor)
        self.shared = shares_version(tensor)
        """Other tensors, which may be trained, share its version counter."""
        self.enforced = not is_statistic
        """It is frozen again if the script makes it trainable. Otherwise it is only verified, and only while it is frozen."""
        self.begin(tensor)

    def begin(self, tensor: torch.Tensor) -> None:
        """Verify from now on."""
        self.version = self.seen = version_of(tensor)
        """Its version counter at the freeze, and at the last check."""
        self.cause: str | None = None
        """What ran when its version counter was first found to have changed."""
        self.reported = False
        """Its change has been reported."""


@dataclass(frozen=True)
class Verdict:
    """The result for those tensors of a freeze that are alive and still frozen."""

    tensors: int
    moved: tuple[str, ...]
    """Paths of the tensors that were written to."""
    causes: tuple[str, ...] = field(default=(), compare=False)
    """The cause of each of these writes."""


class Freeze:
    """The tensors that one command has frozen, and the running statistics of `statistics`, (path of a module, module).

    `selection` is what the command named.
    """

    def __init__(
        self,
        command: int,
        step: int,
        tensors: Iterable[tuple[str, torch.Tensor]],
        statistics: Iterable[tuple[str, nn.Module]] = (),
        selection: str = "",
    ) -> None:
        self.command, self.selection = command, selection
        self.since_step = step
        self.is_divided = False
        """A command has changed a part of it since."""
        self.modules: list[weakref.ref[nn.Module]] = []
        self.is_young = True
        """It has not been verified yet."""
        self.held = [_Held(path, tensor) for path, tensor in tensors]
        for path, module in statistics:
            self.modules.append(weakref.ref(module))
            for name, buffer in module._buffers.items():  # noqa: SLF001 - `named_buffers` may be the script's
                if buffer is not None and buffer.layout is torch.strided and not buffer.is_inference():
                    self.held.append(_Held(f"{path}.{name}" if path else name, buffer, is_statistic=True))
        self._at_freeze = _checksums(self.held)
        self._now: BitSample[_Held] | None = None
        """Current checksums that a device has not returned yet."""

    def begin_again(self, step: int) -> None:
        """Verify from now on, since gradtui itself has written other values."""
        self.since_step, self.is_young = step, True
        for held in self.held:
            if (tensor := held.tensor()) is not None:
                held.begin(tensor)
        self._at_freeze, self._now = _checksums(self.held), None

    @property
    def tensors(self) -> int:
        """Number of the frozen parameters that are alive."""
        return sum(not held.is_statistic and held.tensor() is not None for held in self.held)

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return (path, parameter) of the parameters that are alive and must stay frozen."""
        return [(held.path, tensor) for held in self.held if held.enforced and (tensor := held.tensor()) is not None]

    def news(self, *, of_statistics: bool = False) -> Verdict | None:
        """Return writes that have not been reported, by the counters alone; None if there are none.

        `of_statistics` limits this to running statistics.
        """
        asked = [held for held in self.held if held.is_statistic or not of_statistics]
        moved = [held for held in asked if held.cause and not held.reported and not held.shared]
        return self._verdict(moved) if moved else None

    def verdict(self) -> Verdict | None:
        """Return the verification result; None until the device has returned the checksums: call again at the next step."""
        if is_capturing():
            return None
        if self._now is None:
            self._now = _checksums(held for held in self.held if held in self._at_freeze)
        if not (self._at_freeze.is_there and self._now.is_there):
            return None
        is_same, self._now = self._at_freeze.compare(self._now), None
        moved = []
        for held in self.held:
            tensor = held.tensor()
            if tensor is None:
                continue
            is_risen, changed = version_of(tensor) != held.version, is_same.get(held) is False
            if changed and not is_risen:
                # torch's batch norm writes its statistics without raising their version counters.
                held.cause = _COLLECTED if held.is_statistic else _PAST_COUNTERS
            if changed or (is_risen and not (is_same.get(held) and shares_version(tensor))):
                moved.append(held)
        return self._verdict(moved)

    def wait(self) -> Verdict:
        """Return the verdict after waiting for the device, since the user requested it."""
        if (found := self.verdict()) is None and self._now is not None:
            self._at_freeze.wait()
            self._now.wait()
            found = self.verdict()
        assert found is not None
        return found

    def _verdict(self, moved: list[_Held]) -> Verdict:
        for held in moved:
            held.reported = True
        return Verdict(
            self.tensors, tuple(held.path for held in moved), tuple(held.cause or _WRITTEN for held in moved)
        )


class FreezeVerifier:
    """Every freeze in force, and the state that their tensors are expected to have at the next step."""

    def __init__(self) -> None:
        self.freezes: list[Freeze] = []
        """The list object is never replaced: other code holds a reference to it."""
        self._turn = 0
        """The part to check next."""
        self._by_id: dict[int, weakref.ref[torch.Tensor]] | None = None
        """The parameters that must stay frozen, by id; None until first needed."""
        self._owned: list[weakref.ref[torch.Tensor]] = []
        self._expect()

    @property
    def _held(self) -> list[_Held]:
        return [held for freeze in self.freezes for held in freeze.held]

    def add(self, freeze: Freeze) -> None:
        """Verify one more freeze."""
        self.freezes.append(freeze)
        self._expect()

    def forget(self, tensors: Iterable[torch.Tensor], *, divides: bool = False) -> None:
        """Remove tensors from every freeze, since they have been toggled again; `divides` says that a command did that."""
        if not self.freezes:
            return
        changed = {id(tensor) for tensor in tensors}
        for freeze in self.freezes:
            before = freeze.held
            freeze.held = [held for held in before if id(held.tensor()) not in changed]
            freeze.is_divided |= divides and len(freeze.held) < len(before)
        self._expect()

    def returned(self, kept: int, step: int) -> None:
        """Verify the freezes made after step `kept` from now on: the run has its values of that step again."""
        for freeze in self.freezes:
            if freeze.since_step > kept:
                freeze.begin_again(step)
        self._expect()

    def leave_to_script(self, tensors: Iterable[torch.Tensor]) -> None:
        """Let the script make these trainable. They are verified until it does."""
        left = {id(tensor) for tensor in tensors}
        for held in self._held:
            held.enforced = held.enforced and id(held.tensor()) not in left
        self._expect()

    def forget_empty(self) -> None:
        """Remove the freezes that have been verified and of whose parameters none is alive."""
        if gone := [freeze for freeze in self.freezes if not (freeze.is_young or freeze.tensors)]:
            self.freezes[:] = [freeze for freeze in self.freezes if freeze not in gone]
            self._expect()

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return (path, parameter) of the parameters that are alive and must stay frozen."""
        return [each for freeze in self.freezes for each in freeze.parameters()]

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether this parameter is one of those that must stay frozen."""
        if self._by_id is None:
            self._by_id = {id(own): reference for reference in self._owned if (own := reference()) is not None}
        reference = self._by_id.get(id(tensor))
        return reference is not None and reference() is tensor

    def is_disturbed(self) -> bool:
        """Return whether a tensor became trainable or was written to since the last check. Called at every step."""
        return not are_untouched(self._references, self._expected)

    def is_part_disturbed(self) -> bool:
        """Check one part of the tensors as `is_disturbed` does; `rounds` calls check every part once."""
        begin = self._turn % self.rounds * self._part
        self._turn += 1
        end = begin + self._part
        return not are_untouched(self._references[begin:end], self._expected[begin:end])

    def has_gradient(self) -> bool:
        """Return whether a frozen parameter has a gradient, which an optimizer would apply. Called at every step."""
        for reference in self._owned:  # noqa: SIM110 - a generator would be called once more for each parameter
            if (tensor := reference()) is not None and gradient_of(tensor) is not None:
                return True
        return False

    def _expect(self) -> None:
        """Make the current state of the tensors the one expected at the next step."""
        listed = self._held
        self._by_id = None
        self._owned = [held.tensor for held in listed if held.enforced]
        self._references = [held.tensor for held in listed]
        self._expected: list[int | None] = [None if held.shared else held.seen for held in listed]
        self._part = max(_MIN_PART, -(-len(listed) // _PARTS))
        self.rounds = max(1, -(-len(listed) // self._part))
        """Steps needed to check every tensor in parts."""

    def check_counters(self, cause: str, of_statistics: str | None = None) -> None:
        """Record the cause of writes since the last check; `of_statistics` is another cause for statistics.

        Tensors that were left to the script, and that it has made trainable, are verified no more.
        """
        trained = []
        for held in self._held:
            tensor = held.tensor()
            if tensor is None:
                continue
            if tensor.requires_grad and not held.enforced:
                trained.append(tensor)
            elif (version := version_of(tensor)) != held.seen:
                held.seen = version
                held.cause = held.cause or (of_statistics if held.is_statistic else None) or cause
        if trained:
            self.forget(trained)
        else:
            self._expect()

    def collected(self) -> set[int]:
        """Return the ids of the running statistics that a forward has updated although they are held."""
        return {id(held.tensor()) for held in self._held if held.is_statistic and held.cause == WITHIN_STEP}


def _checksums(tensors: Iterable[_Held]) -> BitSample[_Held]:
    # A dispatch or function mode of the script would receive gradtui's operations.
    listed = () if operations_are_observed() else tensors
    return BitSample((held, tensor) for held in listed if (tensor := held.tensor()) is not None)
