"""Interpret what `BufferedReadings` has read: which step each loss, norm and memory total belongs to. Training thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.buffered_readings import BufferedFigures, BufferedNorms
from gradtui.probe.gradients.step_loss import LossReading, StepLoss
from gradtui.probe.memory import StepTotalsReader
from gradtui.probe.steps import BACKWARD, STEP, ZERO_GRAD
from gradtui.protocol.vocabulary import Phase

_ENDED = {BACKWARD: Phase.FORWARD, -BACKWARD: Phase.BACKWARD, -STEP: Phase.OPTIMIZER}
"""By kind of buffered event: the phase that ends with it."""


@dataclass
class BufferedReplay:
    """Assigns what was read to steps, and passes it on.

    Most steps have the same events, with one backward. Their losses are passed on together.
    """

    loss: StepLoss
    memory: StepTotalsReader
    optimizer: int
    """Index of the optimizer that has made the steps."""
    norms_read: Callable[[int, BufferedNorms, LossReading | None], None]
    """Receives the step, its norms, and its loss; None if `losses_read` has received that."""
    loss_read: Callable[[int], None]
    """Receives each step that has ended, whose loss is `loss`."""
    losses_read: Callable[[int, Sequence[float]], None]
    """Receives the first of several steps with one backward each, and their losses. `norms_read` follows for some of them."""

    def run(self, kinds: Sequence[int], read: BufferedFigures, executed: int) -> int:
        """Interpret what was read during buffered events of these kinds, before which `executed` steps had ended.

        Return the number of the next step, or of the one that has not ended.
        """
        first, last = _ends(kinds)
        step = self._one_by_one(kinds, read, 0, first, executed + 1)
        losses = _losses_of_equal_steps(kinds, read, first, last)
        if losses:
            self._of_equal_steps(kinds, read, losses, first, last, step)
            return self._one_by_one(kinds, read, last, len(kinds), step + len(losses))
        return self._one_by_one(kinds, read, first, len(kinds), step)

    def _one_by_one(self, kinds: Sequence[int], read: BufferedFigures, begin: int, end: int, step: int) -> int:
        """Interpret events one by one. Return the number of the step after them."""
        backward = kinds[:begin].count(BACKWARD)
        for position in range(begin, end):
            kind = kinds[position]
            if (total := read.totals.get(position)) is not None:
                self.memory.add(_ENDED[kind], total)
            if kind == BACKWARD:
                value = read.losses[backward] if backward < len(read.losses) else None
                if value is not None:
                    self.loss.add(value, read.factors.get(backward))
                backward += 1
            elif kind == ZERO_GRAD:
                self.loss.forget()
            elif kind == STEP and (norms := read.norms.get(position)) is not None:
                self.norms_read(step, norms, self.loss.reading())
            elif kind == -STEP:
                self.loss_read(step)
                self.memory.step_ended(step, self.optimizer)
                step += 1
        return step

    def _of_equal_steps(
        self, kinds: Sequence[int], read: BufferedFigures, losses: Sequence[float], begin: int, end: int, step: int
    ) -> None:
        length = (end - begin) // len(losses)
        self.losses_read(step, losses)
        for position, norms in read.norms.items():
            if begin <= position < end:
                self.norms_read(step + (position - begin) // length, norms, None)
        for position, total in read.totals.items():
            if begin <= position < end:
                phase = _ENDED[kinds[position]]
                self.memory.add(phase, total)
                if phase is Phase.OPTIMIZER:
                    self.memory.step_ended(step + (position - begin) // length, self.optimizer)


def _ends(kinds: Sequence[int]) -> tuple[int, int]:
    """Return the positions after the first and after the last event that ends a step; 0 if there is none."""
    try:
        return kinds.index(-STEP) + 1, len(kinds) - kinds[::-1].index(-STEP)
    except ValueError:
        return 0, 0


def _losses_of_equal_steps(kinds: Sequence[int], read: BufferedFigures, begin: int, end: int) -> list[float]:
    """Return the losses of the steps between two positions, if all have the same events, one backward, and a finite loss."""
    if begin == end:
        return []
    step = kinds[begin : kinds.index(-STEP, begin) + 1]
    count, left = divmod(end - begin, len(step))
    if left or step.count(BACKWARD) != 1 or [*kinds[begin:end]] != [*step] * count:
        return []
    first = kinds[:begin].count(BACKWARD)
    losses = [each for each in read.losses[first : first + count] if isinstance(each, float) and math.isfinite(each)]
    return losses if len(losses) == count else []
