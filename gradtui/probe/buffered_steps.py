"""Steps of which only the hook events are buffered: when they begin, and what is done with their events later.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import cast

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.parts import ProbeParts
from gradtui.probe.steps import BACKWARD, STEP, CudaGraphs, OptimizerStepStack, replay


class BufferedSteps:
    """Has the steps of simple loops buffered that no part samples, and passes their events on to the parts.

    `steps` has the optimizer steps that are running, `graphs` the captured ones.
    """

    def __init__(self, parts: ProbeParts, steps: OptimizerStepStack, graphs: CudaGraphs) -> None:
        self._parts, self._steps, self._graphs = parts, steps, graphs
        self.latest, self._latest_index = cast("Callable[[], Optimizer | None]", lambda: None), 0
        """Returns the optimizer that stepped last, and its index."""

    def stepped(self, optimizer: Optimizer, index: int) -> None:
        """Note that an optimizer has stepped."""
        self.latest, self._latest_index = weakref.ref(optimizer), index

    def begin(self, now: int, module: nn.Module) -> None:
        """Buffer this step and the next ones, if the loop is simple and no part samples them."""
        parts, optimizer = self._parts, self.latest()
        is_simple = not self._steps and parts.view.round_length == 1 and not parts.view.discovery.dirty
        if optimizer is None or not is_simple or self._graphs.capture is not None:
            return
        if (steps := parts.steps_until_due()) >= 0:
            freezes = parts.dispatcher.freezes
            is_bare = not (parts.step_sampler.tracer.intercepts_calls or freezes.statistics.modules)
            parts.norms.buffered.begin(parts.counter.steps + 1, self._latest_index)
            parts.buffer.begin(now, module, optimizer, freezes, steps=steps, is_bare=is_bare)

    def take(self, events: list[int]) -> None:
        """Pass on events that were buffered: [what, when, what, when …]."""
        hooks, began = self._parts.hooks, perf_counter_ns()
        # Before the steps are counted: this cost made those very steps longer.
        hooks.own_ns += hooks.hidden_ns * len(events) // 2 + self._parts.buffer.take_asking_ns()
        hooks.guard("steps", self._replay, events)
        hooks.own_ns += perf_counter_ns() - began

    def _replay(self, events: list[int]) -> None:
        parts, optimizer, index = self._parts, self.latest(), self._latest_index
        hooks, counter, norms, view = parts.hooks, parts.counter, parts.norms, parts.view
        with parts.phases.times.replaying(parts.clock.now()):
            ends = replay(events, parts.phases)
        with hooks.guarded("gradient norms"):
            norms.replay_buffered(events[::2], counter.steps, optimizer, index)
        counter.micro_steps += events[::2].count(-BACKWARD)
        hooks.guard("call order", parts.order.replay, events[::2], index, counter.steps)
        if ends:
            counter.stepped(index, len(ends))
            parts.cost.steps_ended(ends)
            if optimizer is not None:
                view.stepped(optimizer, counter.steps, counter.micro_steps)
        norms.epochs.replayed(events[::2])
        if optimizer is not None and events[-2] == STEP:
            self._steps.began(optimizer, False)  # the step is still running
        is_over = not parts.buffer.thread
        with hooks.guarded("optimizer settings"):
            # If buffering continues, no code of the script has run since a step or its backward ended.
            view.groups.look(counter.steps + (not parts.buffer.between and not is_over), is_over)
        norms.poll()
        parts.steps_ended(events[-1])
        if parts.step_sampler.steps_until_due(counter.steps) == 0:
            parts.buffer.steps_left = 0
