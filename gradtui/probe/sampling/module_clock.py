"""Read the time of the calls of modules, forward and backward, in one sampled step.

**Forward.** The log of module calls says when the code of another module runs. The time until then is that of the module
whose code ran. What gradtui's hooks took is left out.

**Backward.** The operations of the graph that the walk has found are put into the stretches of the forward that made them: a
stretch is the code of one call between two others. The first operation of each stretch gets a pre-hook for this one backward,
which reads the clock and nothing else. It returns nothing and keeps nothing, like those of `passing_gradients.py`, and a
generator holds what a signal handler of the script raises in it, for the reason given there. Hooks on modules would insert an
operation around each module, with which in-place operations fail.

So the time of an operation belongs to the call that recorded it, also if the module is frozen, is called several times, or is
called in the forward of another one. A gradient that is accumulated, with the script's hooks on it, counts for the module
whose operation computed it. What a checkpointed region computes again counts as backward of the modules that run again.

**Limits.** A hook of the script on a module's output runs before the clock is read, so it counts for the module that ran
before it in backward. What runs in code that torch compiled is one call, that of the compiled module. `autograd.grad`, and what
a double backward records, belong to no module. On a CUDA device the times are between events on the current stream: idle time
of the stream counts. Other devices are not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from gradtui.probe.autograd import OUTSIDE, ModuleCallLog, StretchStarts
from gradtui.probe.runtime import MAX_FAILURES, HookSet
from gradtui.probe.sampling.module_times import CallPlaces, TimedStep
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.operation_mode import backward_is_compiled
from gradtui.probe.torch_private.own_hooks import own_ids

PART = "module times"
_MAX_EVENTS = 8_192
"""A step with more calls is not timed on a device, which needs an event for each."""


class ModuleClock:
    """Times one step at a time."""

    def __init__(self, hooks: HookSet, raised: Callable[[BaseException], None]) -> None:
        self.is_on = False
        """Whether the present step is timed."""
        self._hooks, self._guarded = hooks, hooks.guarded(PART)
        self._device: int | None = None
        self._events: list[Any] = []
        """Events that can be used again."""
        self._raised = raised
        self._handles: list[RemovableHandle] = []
        self._begin_nothing()
        # Its graph may share operations with this one, and no two threads can run a generator at once.
        hooks.other_begins.append(self.drop)

    def _begin_nothing(self) -> None:
        self.step = TimedStep()
        self._places = CallPlaces()
        self._open: list[tuple[int, int]] = []
        """For each module that is running: the place of its call, and the place whose code ran before."""
        self._runs: list[int] = []
        """By stretch: the place whose code runs in it."""
        self._offset = 0
        """Stretches of the log before the step."""
        self._in_backward = False
        self._place = OUTSIDE
        self._since = 0
        self._own = 0
        """What gradtui's hooks had taken at `_since`, in nanoseconds."""

    def _remove(self) -> None:
        # Two threads may be here at once.
        with suppress(IndexError):
            while True:
                self._handles.pop().remove()

    def begin(self, trace: ModuleCallLog, places: CallPlaces, device: int | None) -> None:
        """Begin to time a step whose module calls `trace` logs, on a CUDA device or, with None, on the host."""
        self.drop()
        if device is not None and is_capturing():
            return
        self._device, self._offset, self._places = device, len(trace.numbers), places
        self._since = perf_counter_ns()
        self._own = self._hooks.own_until(self._since)
        self.is_on = device is None or self._record()

    def drop(self) -> None:
        """Time the present step no longer."""
        self._remove()
        self.is_on = False
        self._begin_nothing()

    def entered(self, now: int, module: int, *, is_logged: bool = True) -> None:
        """Handle the beginning of a call. Without `is_logged` it computes a checkpointed region again."""
        if self._in_backward and not self._open:
            place = self._places.again(module)
        else:
            place = self._places.of(module, self._open[-1][0] if self._open else OUTSIDE)
        self._open.append((place, self._place))
        self._turn(now, place, is_logged)

    def left(self, now: int, *, is_logged: bool = True) -> None:
        """Handle the end of the innermost call."""
        if self._open:
            _, before = self._open.pop()
            self._turn(now, before, is_logged)

    def backward_begins(self, starts: StretchStarts) -> None:
        """Handle that a backward is about to run on a graph, of the script or within a reentrant checkpoint."""
        began = perf_counter_ns()
        if self.is_on and not backward_is_compiled():
            with own_ids():
                for stretch, node in starts.operations.items():
                    at = stretch - self._offset
                    hook = self._hook(self._runs[at] if 0 <= at < len(self._runs) else OUTSIDE)
                    next(hook)
                    self._handles.append(node.register_prehook(hook.send))
        self.step.cost += perf_counter_ns() - began
        if not self._in_backward:
            self._in_backward = True
            self._turn(perf_counter_ns(), OUTSIDE, is_logged=False)

    def backward_ended(self, now: int) -> None:
        """Handle the end of the script's backward."""
        if self._in_backward:
            self._turn(now, self._open[-1][0] if self._open else OUTSIDE, is_logged=False)
            self._in_backward = False
            self._remove()
            self.step.cost += perf_counter_ns() - now

    def take(self) -> TimedStep | None:
        """End the step and return its times; None if it was not timed."""
        step = self.step if self.is_on and not self._in_backward else None
        self.drop()
        return step

    def give_back(self, step: TimedStep) -> None:
        """Use the events of a step again."""
        self._events += step.events
        step.events, step.between = [], []

    def _hook(self, place: int) -> Generator[None, Any, None]:
        hooks = self._hooks
        for _ in range(MAX_FAILURES):
            try:
                with self._guarded:
                    while True:
                        yield
                        now = perf_counter_ns()
                        self._turn(now, place, is_logged=False)
                        hooks.own_ns += perf_counter_ns() - now
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is raised again when backward has ended
                self._raised(error)
        while True:
            # A hook that has ended would raise `StopIteration` into backward.
            yield

    def _turn(self, now: int, place: int, is_logged: bool) -> None:
        """Handle that the code of another place runs from here on."""
        if is_logged:
            self._runs.append(place)
        own = self._hooks.own_until(now)
        if self._device is not None:
            self.is_on = self.is_on and self._record()
            self.step.between.append((self._place, self._in_backward))
        elif self._place >= 0:
            self.step.add(self._place, max(0, now - self._since - own + self._own), self._in_backward)
        self._place, self._since = place, perf_counter_ns()
        # What calls this is charged from `now` on, when it ends.
        self._own = own + self._since - now
        self.step.cost += self._since - now

    def _record(self) -> bool:
        """Record an event on the device, if there may be one more."""
        if len(self.step.events) >= _MAX_EVENTS or is_capturing():
            return False
        event = self._events.pop() if self._events else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self.step.events.append(event)
        return True
