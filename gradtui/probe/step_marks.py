"""Steps that nobody looks at closely: noted as bare marks while they run, and told to the probe later, many in one go.

On steps below a millisecond the hooks' Python code costs far more than its instructions: torch's own code has pushed it out
of the processor's caches by the time of the next hook. A mark is two numbers added to a list; what it means is worked out for
all marks together some tens of milliseconds later, when that code is warm. Every mark carries its own time, so nothing is lost.

Marks are taken between two steps that are examined, and only while a step goes its plain way: the model and the optimizer that
the last step had, and nothing that runs within something else. Whatever else happens, the marks are told first, and the
probe hears of it at once. Runs on the training thread.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable, Sized
from time import perf_counter_ns

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.protocol.vocabulary import Phase

FORWARD, BACKWARD, STEP, ZERO_GRAD, DATA = 1, 2, 3, 4, 5
"""What began; the negative number says that it ended."""

_PHASE_AFTER = {
    FORWARD: Phase.FORWARD,
    BACKWARD: Phase.BACKWARD,
    -BACKWARD: Phase.OTHER,
    STEP: Phase.OPTIMIZER,
    -STEP: Phase.DATA,
    ZERO_GRAD: Phase.ZERO_GRAD,
    DATA: Phase.DATA,
}

_TELL_NS = 100_000_000
"""Marks wait this long at most, as long as the counts of short steps do."""


class StepMarks:
    """Takes marks from `begin` until something unusual happens; `tell` is called with [what, when, what, when …]."""

    def __init__(self, waiting: Sized, tell: Callable[[list[int]], None]) -> None:
        self._waiting = waiting
        self._tell = tell
        self._frozen: Sized = ()
        self._is_disturbed: Callable[[], bool] = lambda: False
        self._is_in_the_way: Callable[[], bool] = lambda: False
        self._thread: int | None = None
        """The thread whose steps are marked; None while none are."""
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._optimizer: Callable[[], Optimizer | None] = lambda: None
        self._steps_left = 0
        self.between = False
        """A step has ended, and nothing of the next one has run yet."""
        self._within = 0
        """What is running now, 0 if nothing is."""
        self._marks: list[int] = []
        """What and when, added both at once: a Ctrl+C may come between any two calls."""
        self._tell_at = 0
        self.asking_ns = 0
        """What asking at every step has cost since it was charged last: it grows with what is frozen."""

    def heed(self, frozen: Sized, is_disturbed: Callable[[], bool], is_in_the_way: Callable[[], bool]) -> None:
        """While anything is `frozen`, ask the others at every step, and take no mark of one where either says so.

        `is_disturbed`: something is no longer as a command has made it, so that a step may not begin unseen;
        `is_in_the_way`: something has to be done before an optimizer's step.
        """
        self._frozen, self._is_disturbed, self._is_in_the_way = frozen, is_disturbed, is_in_the_way

    def begin(self, now: int, model: nn.Module, optimizer: Optimizer, steps: int) -> None:
        """Mark the rest of this step, whose forward by `model` has begun, and as many `steps` after it."""
        self._thread = get_ident()
        self._model, self._optimizer = weakref.ref(model), weakref.ref(optimizer)
        self._steps_left, self.between, self._within = steps, False, 0
        self._tell_at = now + _TELL_NS

    @property
    def marks_go_on(self) -> bool:
        """What a DataLoader gives now is for a step that is marked only: nobody looks at it."""
        return self._thread is not None and (self._steps_left > 0 or not self.between)

    def leave(self) -> None:
        """Take no more marks, and tell those there are: something else is about to be told."""
        if self._thread is not None:
            self._thread = None
            self._within = 0
            if self._marks:
                self._flush()

    def phase(self) -> Phase | None:
        """The phase by the last mark, None if that does not tell; may be asked on any thread."""
        happened = self._marks[::2]
        if happened and happened[-1] == -ZERO_GRAD:
            # What was going on before goes on.
            del happened[-2:]
        return _PHASE_AFTER.get(happened[-1]) if happened else None

    def forward(self, model: nn.Module) -> bool:
        """An outermost module is called; whether a mark says all there is to say."""
        if self._thread != get_ident() or self._within or self._model() is not model:
            return False
        if not (model.training and torch.is_grad_enabled()):
            return False
        if self.between:
            if self._waiting or not self._steps_left:
                return False
            if self._frozen and self._ask(self._is_disturbed):
                return False
            self._steps_left -= 1
            self.between = False
        self._marks.extend((FORWARD, perf_counter_ns()))
        return True

    def began(self, what: int) -> bool:
        """Gradients begin to be cleared, or a batch is asked for; whether a mark says all there is to say."""
        if self._thread != get_ident() or self._within:
            return False
        if what != DATA:
            self._within = what
        self._marks.extend((what, perf_counter_ns()))
        return True

    def backward(self) -> bool:
        """An outermost backward begins; whether a mark says all there is to say."""
        if self._thread != get_ident() or self._within or self.between:
            return False
        self._within = BACKWARD
        self._marks.extend((BACKWARD, perf_counter_ns()))
        return True

    def step(self, optimizer: Optimizer) -> bool:
        """An optimizer's step without a closure begins; whether a mark says all there is to say."""
        if self._thread != get_ident() or self._within or self._optimizer() is not optimizer:
            return False
        if self._frozen and self._ask(self._is_in_the_way):
            return False
        self._within = STEP
        self._marks.extend((STEP, perf_counter_ns()))
        return True

    def ended(self, what: int) -> bool:
        """What the calling thread had marked as begun has ended; whether a mark says all there is to say."""
        if self._within != what:
            return False
        self._within = 0
        now = perf_counter_ns()
        self._marks.extend((-what, now))
        if now >= self._tell_at:
            self._tell_at = now + _TELL_NS
            self._flush()
        return True

    def step_ended(self) -> bool:
        """An optimizer's step has ended; whether a mark says all there is to say."""
        if self._thread != get_ident() or self._within != STEP:
            return False
        self.between = True
        return self.ended(STEP)

    def _ask(self, question: Callable[[], bool]) -> bool:
        began = perf_counter_ns()
        answer = question()
        self.asking_ns += perf_counter_ns() - began
        return answer

    def _flush(self) -> None:
        marks, self._marks = self._marks, []
        self._tell(marks)
