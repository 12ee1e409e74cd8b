"""Which module's code was running when autograd recorded an operation. Runs on the training thread, on examined steps.

Each node of the autograd graph carries the sequence number it was made with. Noting that number whenever a module begins or
ends tells, by bisection, whose operation a node is: exact, and far cheaper than hooks on tensors or modules.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from gradtui.probe.torch_private.private_names import sequence_number
from gradtui.probe.torch_private.saved_hooks import reentrant_needs_gradient
from gradtui.protocol.vocabulary import GradMode

# An enumeration's values by names of this module's own: this is asked at every module call of an examined step.
_GRAD, _NO_GRAD, _INFERENCE = GradMode.GRAD.value, GradMode.NO_GRAD.value, GradMode.INFERENCE.value
_NOT_CHECKPOINTED = GradMode.NOT_CHECKPOINTED.value

OUTSIDE = -1
"""The module index of operations outside any known module."""


@dataclass
class ModuleCallLog:
    """Where modules began and ended during a forward, in autograd's own numbering.

    `numbers[i]` is the sequence number at the i-th boundary and `modules[i]` the module whose code runs from there on.
    """

    numbers: list[int] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    grad_modes: dict[int, str] = field(default_factory=dict)
    """Module -> `GradMode` letter it was called under, in the order of first calls; one that was ever recorded counts so."""
    _open: list[int] = field(default_factory=list)
    _modes: list[tuple[str, bool]] = field(default_factory=list)
    """Of each that is running: its letter, and whether it is within a reentrant checkpoint."""

    @property
    def now(self) -> int:
        """The innermost module that is running."""
        return self._open[-1] if self._open else OUTSIDE

    def entered(self, module: int) -> None:
        """A module's forward begins."""
        self.numbers.append(sequence_number())
        self.modules.append(module)
        mode, inside = grad_mode(), False
        if mode == _NO_GRAD:
            mode, inside = self._without_grad()
        self._open.append(module)
        self._modes.append((mode, inside))
        if self.grad_modes.get(module) != _GRAD:
            self.grad_modes[module] = joined(self.grad_modes.get(module), mode)

    def left(self) -> None:
        """The innermost module's forward ends."""
        around = self._open
        if around:
            around.pop()
            self._modes.pop()
        self.numbers.append(sequence_number())
        self.modules.append(around[-1] if around else OUTSIDE)

    def _without_grad(self) -> tuple[str, bool]:
        """As `_modes`, of a module that is called under no_grad: a reentrant checkpoint runs its modules so at first."""
        if self._modes and (self._modes[-1][1] or self._modes[-1][0] == _NO_GRAD):
            return self._modes[-1]
        needs = reentrant_needs_gradient()
        if needs is None:
            return _NO_GRAD, False
        return _GRAD if needs else _NOT_CHECKPOINTED, True

    def module_of(self, number: int) -> int:
        """The module whose code made the node with this sequence number."""
        place = bisect_right(self.numbers, number) - 1
        return self.modules[place] if place >= 0 else OUTSIDE

    def ended(self, modules: Container[int]) -> int | None:
        """The number of the first operation after the last of these modules has run; None if none of them has."""
        ran = [place for place, module in enumerate(self.modules) if module in modules]
        return self.numbers[min(ran[-1] + 1, len(self.numbers) - 1)] if ran else None

    def entered_within(self, number: int, module: int) -> set[int]:
        """The modules that ran, without autograd recording, within the one operation of this number, called by `module`.

        What follows it without recording either (an `Identity`) cannot be told from it.
        """
        places = slice(bisect_right(self.numbers, number), bisect_right(self.numbers, number + 1))
        ran = self.modules[places]
        # After the last return to the caller comes what recorded the next operation.
        last = max((place for place, each in enumerate(ran) if each == module), default=0)
        return set(ran[:last]) - {module}


def grad_mode() -> str:
    """The `GradMode` letter of this moment on this thread. Inference mode switches recording off too, so it is asked first."""
    if torch.is_inference_mode_enabled():
        return _INFERENCE
    return _GRAD if torch.is_grad_enabled() else _NO_GRAD


def joined(before: str | None, now: str) -> str:
    """The letter of a module that is called again."""
    return before if before == _GRAD else now


Places = Mapping[int, tuple[int, "weakref.ref[nn.Module]"]]
"""id of a module -> its place, and the module."""


class ModuleCallLogger:
    """Fills one trace at a time, with what happens on the thread that began it."""

    __slots__ = ("_parents", "_places", "_thread", "_trace", "calls", "inside", "minds", "on", "passes")

    def __init__(self) -> None:
        self.on = False
        """A trace is being filled."""
        self.passes = False
        """Module calls matter to nobody: they are within an outermost one, and nothing is being traced.

        Read by the wrapper around every module call: a plain attribute, because that is the hottest place there is.
        """
        self.inside = 0
        """The thread that is listened to while it is within an outermost module call, else 0."""
        self.minds = False
        """Some modules are called in another way, so that every call has to be looked at."""
        self.calls: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        """By id: each module that another module has called and that is no child of a known one, with the caller's place."""
        self._parents: Sequence[int] = ()
        self._trace = ModuleCallLog()
        self._places: Places = {}
        self._thread = 0

    @property
    def trace(self) -> ModuleCallLog:
        """What is being filled; an empty one while that is nothing."""
        return self._trace

    def begin(self, places: Places, onto: ModuleCallLog | None = None, parents: Sequence[int] = ()) -> ModuleCallLog:
        """Begin a new trace, or go on with `onto`.

        Args:
            places: of each known module by its id(), as `ModuleTree.module_index`.
            onto: an earlier trace of the same modules.
            parents: by module, the index of its parent; without them `calls` stays empty.
        """
        if onto is None:
            self.calls.clear()
        self._parents = parents
        self._trace, self._places, self._thread = onto or ModuleCallLog(), places, get_ident()
        self.on = True
        self.passes = False
        return self._trace

    def stop(self) -> None:
        """Trace no further. The trace so far belongs to whoever began it."""
        self.on = False
        self.passes = self.inside != 0 and not self.minds
        self._trace, self._places = ModuleCallLog(), {}

    def entered(self, now: int, module: nn.Module) -> None:  # noqa: ARG002 - as every callback of a hook
        """A module is called."""
        if self.on and get_ident() == self._thread:
            # As `ModuleTree.place_of`, without a call.
            known, caller = self._places.get(id(module)), self._trace.now
            place = known[0] if known is not None and known[1]() is module else OUTSIDE
            if caller >= 0 and self._parents and (place < 0 or self._parents[place] < 0):
                self.calls[id(module)] = weakref.ref(module), caller
            self._trace.entered(place)

    def left(self, now: int) -> None:  # noqa: ARG002
        """The module that was entered last has returned or raised."""
        if self.on and get_ident() == self._thread:
            self._trace.left()
