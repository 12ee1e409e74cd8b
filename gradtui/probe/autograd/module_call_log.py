"""Log which module's code was running when autograd recorded an operation. Runs on the training thread, at sampled steps.

Each node of the autograd graph carries the sequence number it was made with. The log stores that number whenever a module
begins or ends, and finds the module of a node by bisection: exact, and far cheaper than hooks on tensors or modules.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import field
from typing import Protocol

import torch
from torch import nn

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.private_names import sequence_number
from gradtui.probe.torch_private.saved_hooks import reentrant_needs_gradient
from gradtui.protocol.vocabulary import GradMode

# Enum values under module-level names: they are read at every module call of a sampled step.
_GRAD, _NO_GRAD, _INFERENCE = GradMode.GRAD.value, GradMode.NO_GRAD.value, GradMode.INFERENCE.value
_NOT_CHECKPOINTED = GradMode.NOT_CHECKPOINTED.value

OUTSIDE = -1
"""The module index of operations outside any known module."""


@dataclass
class ModuleCallLog:
    """The points where modules began and ended during a forward, as autograd sequence numbers.

    `numbers[i]` is the sequence number at the i-th boundary and `modules[i]` the module whose code runs from there on.
    """

    numbers: list[int] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    grad_modes: dict[int, str] = field(default_factory=dict)
    """Module -> letter of the `GradMode` it was called under, in the order of first calls. `GRAD` takes precedence over other
    calls."""
    moved: Callable[[int], None] | None = None
    """Called with the module whose code runs from here on, at each boundary."""
    open: list[int] = field(default_factory=list)
    """The modules that are running, the innermost last."""
    _calls: list[int] = field(default_factory=list)
    """For each running module: the number of its call."""
    _modes: list[tuple[str, bool]] = field(default_factory=list)
    """For each running module: its letter, and whether it is within a reentrant checkpoint."""

    @property
    def now(self) -> int:
        """The innermost module that is running."""
        return self.open[-1] if self.open else OUTSIDE

    @property
    def calls_now(self) -> list[tuple[int, int]]:
        """The calls that are running, the innermost last: the number of each, which no other call has, and its module."""
        return list(zip(self._calls, self.open))

    def entered(self, module: int, *, is_part: bool = False) -> None:
        """Record that a module's forward begins; with `is_part` as a part of the call of that module that is running."""
        self._calls.append(self._calls[-1] if is_part else len(self.numbers))
        self.numbers.append(sequence_number())
        self.modules.append(module)
        mode, inside = grad_mode(), False
        if mode == _NO_GRAD:
            mode, inside = self._without_grad()
        self.open.append(module)
        self._modes.append((mode, inside))
        if self.grad_modes.get(module) != _GRAD:
            self.grad_modes[module] = mode
        if self.moved is not None:
            self.moved(module)

    def left(self) -> None:
        """Record that the innermost module's forward ends."""
        around = self.open
        if around:
            around.pop()
            self._calls.pop()
            self._modes.pop()
        self.numbers.append(sequence_number())
        self.modules.append(around[-1] if around else OUTSIDE)
        if self.moved is not None:
            self.moved(self.modules[-1])

    def _without_grad(self) -> tuple[str, bool]:
        """Return the `_modes` entry of a module called under no_grad: a reentrant checkpoint at first runs its modules so."""
        if self._modes and (self._modes[-1][1] or self._modes[-1][0] == _NO_GRAD):
            return self._modes[-1]
        needs = reentrant_needs_gradient()
        if needs is None:
            return _NO_GRAD, False
        return _GRAD if needs else _NOT_CHECKPOINTED, True

    def module_of(self, number: int) -> int:
        """Return the module whose code made the node with this sequence number."""
        index = bisect_right(self.numbers, number) - 1
        return self.modules[index] if index >= 0 else OUTSIDE

    def ended(self, modules: Container[int]) -> int | None:
        """Return the sequence number of the first operation after the last of these modules ran; None if none of them ran."""
        ran = [index for index, module in enumerate(self.modules) if module in modules]
        return self.numbers[min(ran[-1] + 1, len(self.numbers) - 1)] if ran else None

    def entered_within(self, number: int, module: int) -> set[int]:
        """Return the modules that ran, without recording, within the operation with this sequence number, called by `module`.

        Modules that run after it, also without recording (an `Identity`), cannot be distinguished from those within it.
        """
        indices = slice(bisect_right(self.numbers, number), bisect_right(self.numbers, number + 1))
        ran = self.modules[indices]
        # The last return to the caller is followed by the code that recorded the next operation.
        last = max((index for index, each in enumerate(ran) if each == module), default=0)
        return set(ran[:last]) - {module}


def grad_mode() -> str:
    """Return the current thread's `GradMode` letter. Inference mode also disables recording, so it is checked first."""
    if torch.is_inference_mode_enabled():
        return _INFERENCE
    return _GRAD if torch.is_grad_enabled() else _NO_GRAD


ModuleIndices = Mapping[int, tuple[int, "weakref.ref[nn.Module]"]]
"""`id()` of a module -> its index and a weak reference to it."""


class CallWatch(Protocol):
    """What looks at the calls of some modules while calls are logged."""

    modules: Container[int]
    """Indexes of these modules."""
    depth: int
    """Number of modules that ran when the innermost such call was entered, with it; -1 if none runs."""

    def entered(self, module: nn.Module, index: int, depth: int) -> None:
        """Handle the beginning of such a call."""

    def left(self) -> None:
        """Handle the end of the innermost one."""


class CallClock(Protocol):
    """What times the calls while they are logged."""

    def entered(self, now: int, module: int, *, is_logged: bool = True) -> None:
        """Handle the beginning of a call at `now`, in nanoseconds. `is_logged`: it begins a stretch of the log."""

    def left(self, now: int, *, is_logged: bool = True) -> None:
        """Handle the end of the innermost one."""


class ModuleCallLogger:
    """Fills one log at a time with the module calls of the thread that began it."""

    __slots__ = (
        "_indices",
        "_parents",
        "_shared",
        "_thread",
        "bypass",
        "calls",
        "clock",
        "inside",
        "intercepts_calls",
        "on",
        "trace",
        "watch",
    )

    def __init__(self) -> None:
        self.on = False
        """A log is being filled."""
        self.bypass = False
        """Module calls need no handling: they are within an outermost call, and no log is being filled.

        The wrapper around every module call reads this. It is a plain attribute, because that wrapper is the hottest code of
        gradtui.
        """
        self.inside = 0
        """The id of the observed thread while it is within an outermost module call, else 0."""
        self.intercepts_calls = False
        """Some modules are called in another way, so that every call has to be checked."""
        self.calls: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        """By `id()`: each module that another module has called and that is no child of a known module, with the caller's
        index."""
        self.watch: CallWatch | None = None
        """The logger calls it at the beginning and end of each call of the modules that it names."""
        self.clock: CallClock | None = None
        """Times each call of the log that is being filled."""
        self._shared: Container[int] = ()
        self._parents: Sequence[int] = ()
        self.trace = ModuleCallLog()
        """The log that is being filled; an empty one if there is none."""
        self._indices: ModuleIndices = {}
        self._thread = 0

    def begin(
        self,
        indices: ModuleIndices,
        onto: ModuleCallLog | None = None,
        parents: Sequence[int] = (),
        shared: Container[int] = (),
    ) -> ModuleCallLog:
        """Begin a new log, or continue with `onto`.

        Args:
            indices: the index of each known module by its `id()`, as `ModuleTree.module_index`.
            onto: an earlier log of the same modules.
            parents: by module, the index of its parent; without them `calls` stays empty.
            shared: modules whose calls count as parts of their callers' calls, as `ModuleTree.shared`.
        """
        if onto is None:
            self.calls.clear()
        self._parents, self._shared, self.clock = parents, shared, None
        self.trace, self._indices, self._thread = onto or ModuleCallLog(), indices, get_ident()
        self.on = True
        self.bypass = False
        return self.trace

    def stop(self) -> None:
        """Stop logging. The log so far belongs to the caller that began it."""
        self.on = False
        self.bypass = self.inside != 0 and not self.intercepts_calls
        self.trace, self._indices, self.clock = ModuleCallLog(), {}, None

    def entered(self, now: int, module: nn.Module) -> None:
        """Handle the beginning of a module call."""
        if self.on and get_ident() == self._thread:
            # Inlined `ModuleTree.index_of`.
            known, caller = self._indices.get(id(module)), self.trace.now
            index = known[0] if known is not None and known[1]() is module else OUTSIDE
            if caller >= 0 and self._parents and (index < 0 or self._parents[index] < 0):
                self.calls[id(module)] = weakref.ref(module), caller
            if caller >= 0 and index in self._shared:
                self.trace.entered(caller, is_part=True)
            else:
                self.trace.entered(index)
            if self.watch is not None and index in self.watch.modules:
                self.watch.entered(module, index, len(self.trace.open))
            if self.clock is not None:
                self.clock.entered(now, index)

    def left(self, now: int) -> None:
        """Handle the end of the innermost module call, whether it returned or raised."""
        if self.on and get_ident() == self._thread:
            if self.watch is not None and self.watch.depth == len(self.trace.open):
                self.watch.left()
            self.trace.left()
            if self.clock is not None:
                self.clock.left(now)

    def entered_again(self, now: int, module: nn.Module) -> None:
        """Handle the beginning of a call that computes a checkpointed region again. The log does not have it."""
        if self.clock is not None:
            known = self._indices.get(id(module))
            is_known = known is not None and known[1]() is module
            self.clock.entered(now, known[0] if known is not None and is_known else OUTSIDE, is_logged=False)

    def left_again(self, now: int) -> None:
        """Handle the end of such a call."""
        if self.clock is not None:
            self.clock.left(now, is_logged=False)
