"""Which steps are taken apart: a few as the budget allows, and those a person asks for. Runs on the training thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradtui.probe.autograd import ModuleCallLog
from gradtui.probe.memory.memory_profiler import MemoryProfiler
from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import SamplingSchedule
from gradtui.probe.torch_private.operation_mode import something_is_compiled
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.events import StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase

_FIRST = 2
"""The first step makes the optimizer's state, and only in the next one all there ever is comes together."""
_DISPATCH_NS = 6_000
"""An estimate of what it takes torch to show one operation to Python and to tell of what it frees, beside what we do with it:
5 µs with a mode that only passes operations on, 6 to 10 with ours (the steps of `benchmarks/memory.py`, two busy cores)."""


class MemoryProfileSchedule:
    """Begins and ends a `MemoryProfiler`; at most one at a time. `charge` is told the nanoseconds that one has cost.

    Without a `cadence` only those are taken apart that a person asks for.
    """

    def __init__(self, cadence: SamplingSchedule | None, view: ModelRegistry, charge: Callable[[int], None]) -> None:
        self.current: MemoryProfiler | None = None
        """The step that is being taken apart."""
        self._cadence = cadence
        self._view = view
        self._charge = charge
        self._asked = False
        self._unpaid = 0.0
        """Seconds that the last one has cost, as long as the cadence has not been told."""

    def ask(self, device_type: str) -> str | None:
        """Take the next step apart; why not, in words, if that cannot be."""
        if device_type != "cpu":
            return f"operations can be followed on the CPU only, and the models are on {device_type}"
        if something_is_compiled():
            return "torch.compile has compiled something, and would compile it anew if operations were followed"
        self._asked = True
        return None

    def is_due(self, executed: int, device_type: str, *, only_asked: bool = False) -> bool:
        """Whether to take the step after `executed` ones apart; with `only_asked` only where a person has asked for it."""
        if device_type != "cpu" or something_is_compiled() or operations_are_observed():
            return False
        if self._cadence is None or executed < _FIRST or only_asked:
            return self._asked
        return self._cadence.is_due(executed, wanted=self._asked)

    def steps_until_due(self, executed: int, device_type: str, *, only_asked: bool = False) -> int:
        """How many steps in a row after the one that follows `executed` ones are not taken apart."""
        if self._asked:
            return 0
        if self._cadence is None or device_type != "cpu" or something_is_compiled() or only_asked:
            return sys.maxsize
        return 0 if executed < _FIRST else self._cadence.steps_until_due(executed)

    def begin(self, modules: ModuleCallLog, device_type: str, total: int) -> None:
        """A step begins that is taken apart."""
        self._asked = False
        self.current = MemoryProfiler(self._view.tree, modules, self._view.live_optimizers(), device_type, total)

    def enter(self) -> None:
        """The script calls forward, backward or an optimizer's step."""
        if self.current is not None:
            self.current.enter()

    def leave(self) -> None:
        """That call has ended."""
        if self.current is not None:
            self.current.leave()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within this nothing is followed: an optimizer that steps within backward is measured while that is taken apart."""
        tracer = self.current
        paused = tracer is not None and tracer.pause()
        try:
            yield
        finally:
            if paused and tracer is not None and self.current is tracer:
                tracer.resume()

    def phase(self, phase: Phase) -> None:
        """A phase begins."""
        if self.current is not None:
            self.current.phase(phase)

    def finish_step(self, at: float, step: int) -> StepMemoryProfiled | None:
        """The step is over: what it says, None if it was not taken apart."""
        if self.current is None:
            return None
        said = self.current.finish(at, step)
        self.drop()
        return said

    def drop(self) -> None:
        """Follow nothing any further: the tree is another, or the run is over."""
        tracer, self.current = self.current, None
        if tracer is not None:
            tracer.abandon()
            cost = tracer.own_ns + tracer.operations * _DISPATCH_NS
            self._charge(cost)
            self._unpaid += cost / 1e9

    def settle(self, cost: float) -> bool:
        """All that was done in the step before took so many seconds. Says whether it was taken apart, and bears that cost."""
        unpaid, self._unpaid = self._unpaid, 0.0
        if not unpaid or self._cadence is None:
            return False
        self._cadence.record_cost(unpaid, max(0.0, cost - unpaid))
        return True
