"""Measure what changes of the run have changed in memory and time, and emit it. Training thread only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice

from gradtui.probe.commands.time_change import LEAST_STEPS, time_change
from gradtui.probe.runtime import ProbeContext
from gradtui.probe.sampling import StepSampler
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.events import ReceiptTaken
from gradtui.text import effect_text

_MEMORY_ROUNDS = 2
"""The second sampled round after a change is the first with all of the optimizer state."""
_MEMORY_PATIENCE = 10
"""Rounds after which the memory is that of the samples made so far, if there are any."""
_TIME_ROUNDS = 24
"""Rounds that are not sampled, on each side of a change, whose durations are compared."""
_TIME_PATIENCE = 200
"""Rounds after which a receipt waits no longer for their durations."""


@dataclass(frozen=True)
class Baseline:
    """The measurements before a change."""

    memory: StepMemory | None
    durations: tuple[float, ...]
    """Of the newest rounds that were not sampled, in seconds, up to the change before."""


@dataclass
class _Open:
    """A change whose effect is not known completely."""

    command: int
    title: str
    step: int
    """The step before the boundary of the change."""
    counted: int
    """`StepTime.count` then."""
    baseline: Baseline
    effect: Effect
    is_emitted: bool = False
    """Its memory has been emitted."""


class Receipts:
    """Compares sampled steps and the durations of other steps before and after each change.

    A receipt comes with the second sampled round after its change, and once more if the duration of a step has changed. A later
    change ends those before it: their effects could not be told apart. Nothing is called at a step for this: the durations are
    those that `StepTime` keeps anyway, and `poll` is called when events are flushed.
    """

    def __init__(self, context: ProbeContext, step_sampler: StepSampler) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._sampler, self._time = step_sampler, step_sampler.step_time
        self.open: list[_Open] = []
        """The changes whose effect is not known completely."""
        self._changed_at = 0
        """`StepTime.count` at the newest change."""

    def tree_changed(self) -> None:
        """Drop all receipts, since other models are measured from now on."""
        self.open.clear()

    def baseline(self) -> Baseline:
        """Return the measurements before a change that is about to be made."""
        newest = list(self._sampler.memories)[-self._view.round_length :]
        durations = self._durations(self._changed_at)
        return Baseline(_joined(newest), tuple(durations[-_TIME_ROUNDS:]))

    def begin(
        self,
        command: int,
        title: str,
        step: int,
        joined: tuple[tuple[str, int], ...] = (),
        baseline: Baseline | None = None,
    ) -> None:
        """Begin the receipt of a change that was made at the boundary after step `step`.

        Args:
            command: the id of the command.
            title: what was changed, in words.
            step: the last step before the change.
            joined: the optimizers that parameters joined, each with their number.
            baseline: the measurements before it, if they were taken earlier.
        """
        for each in [each for each in self.open if each.step != step]:
            self._settle(each, step, is_over=True)
        here = [each for each in self.open if each.step == step]
        if baseline is None:
            baseline = here[0].baseline if here else self.baseline()
        self._changed_at = self._time.count
        self.open = here
        if baseline.memory is not None:
            effect = Effect(before=baseline.memory, joined=joined)
            self.open.append(_Open(command, title, step, self._time.count, baseline, effect))
        for each in self.open:
            each.effect = replace(each.effect, others=len(self.open) - 1)

    def poll(self, step: int, *, is_over: bool = False) -> None:
        """Emit what is known by now of the open changes. `is_over` says that there will be no further step."""
        self.open = [each for each in self.open if not self._settle(each, step, is_over=is_over)]

    def _settle(self, receipt: _Open, step: int, *, is_over: bool) -> bool:
        """Emit what is known of a change. Return whether nothing more is to come."""
        rounds = (step - receipt.step) // self._view.round_length
        if not receipt.is_emitted:
            is_over = is_over or rounds >= _MEMORY_PATIENCE
            after = self._memory_after(receipt, is_over=is_over)
            if after is None:
                return is_over
            receipt.is_emitted = True
            receipt.effect = replace(receipt.effect, after=after)
            self._say(receipt, step, receipt.effect)
        durations = self._durations(receipt.counted)
        if len(durations) < (LEAST_STEPS if is_over else _TIME_ROUNDS):
            return is_over or rounds >= _TIME_PATIENCE
        change = time_change(receipt.baseline.durations, durations[-_TIME_ROUNDS:])
        if change is not None:
            receipt.effect = replace(receipt.effect, time=change)
            self._say(receipt, step, Effect(time=change))
        return True

    def _memory_after(self, receipt: _Open, *, is_over: bool) -> StepMemory | None:
        """Return the memory of the newest sampled round since a change; None until it shows all of the effect."""
        length = self._view.round_length
        after = [each for each in self._sampler.memories if each.step > receipt.step]
        if not after or not (is_over or after[-1].step >= receipt.step + _MEMORY_ROUNDS * length):
            return None
        return _joined(after[-length:])

    def _say(self, receipt: _Open, step: int, new: Effect) -> None:
        """Emit a receipt whose text has only what is `new`."""
        text = effect_text(new)
        if text:
            words = f"{receipt.title}: {text}"
            self._emit(ReceiptTaken(self._clock.at(), step, receipt.command, words, True, receipt.effect))

    def _durations(self, since: int) -> list[float]:
        """Return the durations of the rounds since a count of steps that were not sampled, oldest first.

        Any steps that follow each other, as many as a round has, take the time of a round.
        """
        length = self._view.round_length
        newest = self._time.newest
        steps = list(islice(newest, max(0, len(newest) - (self._time.count - since)), None))
        sums = [math.fsum(steps[end - length : end]) for end in range(len(steps), length - 1, -length)]
        return [seconds for seconds in reversed(sums) if not math.isnan(seconds)]


def _joined(memories: Sequence[StepMemory]) -> StepMemory | None:
    return reduce(StepMemory.joined, memories) if memories else None
