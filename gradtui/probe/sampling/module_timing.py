"""Time the modules in sampled steps whose operations nothing else logs, and emit what is typical of them."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from gradtui.probe.autograd import ModuleCallLogger, Recomputation, StretchStarts
from gradtui.probe.sampling.module_clock import PART, ModuleClock
from gradtui.probe.sampling.module_times import ModuleTimes, TimedStep
from gradtui.probe.steps import ProbeContext, StepTimes

_EMIT_NS = 1_000_000_000
"""Nanoseconds between two events."""


class ModuleTiming:
    """Decides which steps are timed. The first step is not: it has the setup of the run, and compiles or searches kernels."""

    def __init__(
        self,
        context: ProbeContext,
        tracer: ModuleCallLogger,
        recomputation: Recomputation,
        raised: Callable[[BaseException], None],
    ) -> None:
        """Create it. `raised` receives what a signal handler of the script raised within backward, and raises it later."""
        self.clock = ModuleClock(context.hooks, raised)
        self._context, self._tracer, self._recomputation = context, tracer, recomputation
        self._times = ModuleTimes()
        self.is_on_device = False
        """The newest step was timed on a CUDA device."""
        self._under_way: tuple[TimedStep, int] | None = None
        """A step whose events the device has not reached, with its optimizer."""
        self._has_news = False
        self._emitted_at = -_EMIT_NS

    @property
    def timed_steps(self) -> int:
        """The number of steps whose modules were timed since the newest change."""
        return self._times.count

    def clear(self) -> None:
        """Forget the steps so far: the models, or what of them trains, have changed."""
        self.stop()
        self._times.clear()
        self._under_way, self._has_news = None, False

    def changed(self, times: StepTimes) -> None:
        """Forget the steps before a command has changed the run, and leave them out of the medians of all steps."""
        self.clear()
        times.changed()

    def stop(self) -> None:
        """Time the present step no longer."""
        self.clock.drop()
        self._tracer.clock = self._recomputation.times = None

    def begin_step(self, step: int, device_type: str, cuda: int | None) -> None:
        """Time the step after step `step`, whose module calls the tracer logs, on the host or on a CUDA device."""
        self._poll()
        can_time = cuda is not None or device_type == "cpu"
        if step and can_time and self._under_way is None and not self._context.hooks.is_off(PART):
            self.is_on_device = cuda is not None
            if self._times.places.is_full():
                self._times.clear()
            self.clock.begin(self._tracer.trace, self._times.places, cuda)
            if self.clock.is_on:
                self._tracer.clock, self._recomputation.times = self.clock, self.clock.backward_begins

    def starts(self) -> StretchStarts | None:
        """Return what the walk of a graph is to fill, if its backward is timed."""
        return StretchStarts() if self.clock.is_on else None

    def backward_begins(self, starts: StretchStarts, *, is_known: bool) -> None:
        """Handle that a backward is about to run on a graph, which was walked if `is_known`."""
        if is_known:
            self.clock.backward_begins(starts)
        else:
            self.stop()

    def finish_step(self, optimizer: Optimizer | None) -> None:
        """End a step, and take its times if the device has them."""
        timed = self.clock.take()
        self.stop()
        if timed is not None:
            index = -1 if optimizer is None else self._context.models.discovery.register_optimizer(optimizer)
            self._under_way = timed, index
            self._poll()
        if self._has_news and self._context.clock.now() - self._emitted_at >= _EMIT_NS:
            self.emit()

    def emit(self) -> None:
        """Emit the times of the steps so far, if there are new ones."""
        self._poll()
        if not self._has_news:
            return
        clock, tree, step = self._context.clock, self._context.models.tree, self._context.counter.steps
        self._has_news, self._emitted_at = False, clock.now()
        measured = self._times.measured(clock.at(), step, tree.listing, tree.parents, is_on_device=self.is_on_device)
        if measured is not None:
            self._context.emit(measured)

    def _poll(self) -> None:
        if self._under_way is None or not self._under_way[0].has_ended():
            return
        (timed, optimizer), self._under_way = self._under_way, None
        if timed.read():
            self._times.add(optimizer, timed)
            self._has_news = True
        self.clock.give_back(timed)
