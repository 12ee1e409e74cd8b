"""Decide when buffering hook events is enough, and replay the buffer into the probe. Runs on the training thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sized
from time import perf_counter_ns

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.model import ModelRegistry
from gradtui.probe.runtime import OverheadMeter
from gradtui.probe.steps.event_replay import replay
from gradtui.probe.steps.hook_buffer import STEP, Frozen, HookEventBuffer
from gradtui.probe.steps.optimizer_step_stack import OptimizerStepStack
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.step_counter import StepCounter


class FastPath:
    """Counts the steps of one model and one optimizer between two sampled steps. `on_replay` is called after each replay."""

    def __init__(
        self,
        waiting: Sized,
        frozen: Frozen,
        phases: PhaseTracker,
        counter: StepCounter,
        view: ModelRegistry,
        steps: OptimizerStepStack,
        cost: OverheadMeter,
        on_replay: Callable[[int], None],
    ) -> None:
        self.marks = HookEventBuffer(waiting, frozen, self._replay_timed)
        self._hooks = cost.hooks
        self._phases = phases
        self._counter = counter
        self._view = view
        self._steps = steps
        self._cost = cost
        self._on_replay = on_replay
        self.optimizer: Callable[[], Optimizer | None] = lambda: None
        """The optimizer that stepped last."""
        self._index = 0
        """The index of `optimizer` among all registered ones."""
        phases.marked = self.marks.phase
        self._hooks.first = self.marks.leave

    def stepped(self, optimizer: Optimizer, index: int) -> None:
        """Record a step of this optimizer that the probe handled without the buffer."""
        self.optimizer, self._index = weakref.ref(optimizer), index

    def begin(self, now: int, model: nn.Module, steps_until_due: int, *, is_bare: bool) -> None:
        """Begin to buffer the hook events of a step, if the loop is simple.

        Neither this step nor the `steps_until_due` steps after it are sampled.
        """
        optimizer = self.optimizer()
        is_plain = not self._steps and self._view.round_length == 1 and not self._view.discovery.dirty
        if optimizer is not None and is_plain and steps_until_due >= 0:
            self.marks.begin(now, model, optimizer, steps_until_due, is_bare=is_bare)

    def _replay_timed(self, marks: list[int]) -> None:
        began = perf_counter_ns()
        asking_ns, self.marks.asking_ns = self.marks.asking_ns, 0
        # Before the steps are counted: this cost made those very steps longer.
        self._hooks.own_ns += self._hooks.hidden_ns * len(marks) // 2 + asking_ns
        self._hooks.guard("steps", self._replay, marks)
        self._hooks.own_ns += perf_counter_ns() - began

    def _replay(self, marks: list[int]) -> None:
        result = replay(marks, self._phases)
        ends = result.ends
        self._counter.micro_steps += result.backwards
        if ends:
            self._counter.stepped(self._index, len(ends))
            self._cost.steps_ended(ends)
        optimizer = self.optimizer()
        if optimizer is not None and ends:
            self._view.stepped(optimizer, self._counter.steps, self._counter.micro_steps)
        if optimizer is not None and marks[-2] == STEP:
            # The step is still running.
            self._steps.began(optimizer, False)
        self._on_replay(marks[-1])
