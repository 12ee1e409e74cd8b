"""Estimate how many steps the script is going to make. Training thread, at the end of a step, seldom.

The first of these tells: the trainer of transformers or Lightning whose frame runs, the script's own loops, a learning rate
scheduler. A script may end earlier.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

from torch.optim import Optimizer

from gradtui.probe.model import locals_of
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.script_calls.loop_position import Position, loop_position
from gradtui.probe.script_calls.scheduled_steps import scheduled_steps
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.protocol.events import RunLengthFound

_BETWEEN_NS = 2_000_000_000
_LEAST = 1e-6
"""The least part of the loops that must have been done since they were first seen."""
_TRAINERS = ("transformers/trainer.py", "lightning/pytorch/trainer/trainer.py", "pytorch_lightning/trainer/trainer.py")


class RunLength:
    """What the run's length was found to be."""

    def __init__(self, context: ProbeContext, epochs: Epochs) -> None:
        self._counter, self._models, self._epochs = context.counter, context.models, epochs
        self._began: tuple[Position, int] | None = None
        """Where the present loops were when they were first seen, and the number of steps then."""
        self._schedules: ByIdentity[Any, tuple[int, int]] = ByIdentity()
        """By scheduler: its steps and those of its optimizer when it was first seen."""
        self._look_at = 0
        self._emitted: tuple[int | None, str] = (None, "")

    @property
    def left(self) -> int | None:
        """The number of steps that are still to come, as it was found last; None if it is unknown.

        A run that has gone on past the length that was found has begun another loop since.
        """
        whole, steps = self._emitted[0], self._counter.steps
        return whole - steps if whole is not None and whole > steps else None

    def is_due(self, now: int) -> bool:
        """Return whether to look again at this time in nanoseconds."""
        return now >= self._look_at

    def found(self, now: int, at: float, schedulers: Iterable[Any]) -> RunLengthFound | None:
        """Return the event with what is found; None if it is what the last one said."""
        self._look_at = now + _BETWEEN_NS
        found = self._of_trainer() or self._of_loops() or self._of_schedulers(schedulers) or (None, "")
        if found == self._emitted:
            return None
        self._emitted = found
        return RunLengthFound(at, self._counter.steps, *found)

    def _of_trainer(self) -> tuple[int, str] | None:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
        while frame is not None:
            if frame.f_code.co_filename.replace("\\", "/").endswith(_TRAINERS):
                trainer = locals_of(frame).get("self")
                plan = _plan_of_trainer(trainer)
                if plan is not None:
                    most, made = plan
                    # A trainer counts a step after it has made it, and those of the run that it resumes.
                    ahead = self._counter.steps - made
                    return most + (ahead if abs(ahead) > 1 else 0), type(trainer).__name__
            frame = frame.f_back
        return None

    def _of_loops(self) -> tuple[int, str] | None:
        steps, left = self._epochs.progress
        position = loop_position(None if steps is None or left is None else 1 - left / steps)
        if position is None or not position.loops:
            return None
        made, known = self._counter.steps, self._began
        if known is None or known[0].loops != position.loops or known[0].done > position.done:
            self._began = position, made
            return None
        done = position.done - known[0].done
        if done < _LEAST or made == known[1]:
            return None
        return made + round((made - known[1]) * (1 - position.done) / done), position.source

    def _of_schedulers(self, schedulers: Iterable[Any]) -> tuple[int, str] | None:
        for scheduler in schedulers:
            whole, at = scheduled_steps(scheduler), getattr(scheduler, "last_epoch", None)
            if whole is not None and type(at) is int and 0 <= at < whole:
                left = self._left_of(scheduler, whole, at)
                if left is not None:
                    return self._counter.steps + left, type(scheduler).__name__
        return None

    def _left_of(self, scheduler: Any, whole: int, at: int) -> int | None:
        """Return how many steps of its optimizer are left of a schedule, whose scheduler is at its step `at` of `whole`."""
        optimizer = getattr(scheduler, "optimizer", None)
        # Frameworks wrap it.
        optimizer = getattr(optimizer, "optimizer", optimizer)
        index = self._models.discovery.optimizers.index_of(optimizer) if isinstance(optimizer, Optimizer) else None
        steps = self._counter.steps_of(index) if index is not None else 0
        began = self._schedules.get(scheduler)
        if began is None:
            self._schedules.set(scheduler, (at, steps))
            return None
        made, steps_made = at - began[0], steps - began[1]
        if made >= steps_made > 0:
            # Several processes may share the schedule: a step then counts once for each of them. This one's is still to come.
            return max(0, round((whole - at) * steps_made / made) - 1)
        in_epoch, left = self._epochs.progress
        if in_epoch is not None and left is not None and steps_made and abs(steps_made - made * in_epoch) <= in_epoch:
            return (whole - at - 1) * in_epoch + left
        return None


def _plan_of_trainer(trainer: Any) -> tuple[int, int] | None:
    """Return how many steps a trainer is going to make, and how many it has counted; None if that is unknown.

    transformers: `TrainerState.max_steps`, `global_step`. Lightning: `Trainer.max_steps`, `global_step`, `max_epochs`,
    `num_training_batches`, `accumulate_grad_batches`.
    """
    state: Any = getattr(trainer, "state", None)
    if hasattr(state, "max_steps"):
        return (state.max_steps, state.global_step) if state.max_steps > 0 else None
    made, limits = getattr(trainer, "global_step", None), list[int]()
    if made is None:
        return None
    if (most := getattr(trainer, "max_steps", -1)) > 0:
        limits.append(most)
    epochs, batches = getattr(trainer, "max_epochs", None), getattr(trainer, "num_training_batches", math.inf)
    if epochs is not None and epochs > 0 and 0 < batches < math.inf:
        limits.append(epochs * math.ceil(batches / getattr(trainer, "accumulate_grad_batches", 1)))
    return (min(limits), made) if limits else None
