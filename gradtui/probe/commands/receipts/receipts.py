"""Measure what changes of the run have changed in memory and time, and emit it. Training thread only."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby, islice

from torch.optim import Optimizer

from gradtui.dataclass import dataclass
from gradtui.probe.commands.receipts.time_change import MIN_STEPS, time_change
from gradtui.probe.frozen import VERIFY_STEPS
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.effects import Effect, StepMemory
from gradtui.protocol.events import ReceiptTaken
from gradtui.protocol.freezes import Changed
from gradtui.run.text.effects import effect_text

_MEMORY_ROUNDS = 2
"""The second sampled round after a change is the first with all of the optimizer state."""
_MEMORY_PATIENCE = 10
"""Rounds after which the memory is that of the samples made so far, if there are any."""
_TIME_ROUNDS = 24
"""Rounds that are not sampled, on each side of a change, whose durations are compared. With many optimizers fewer are kept."""
_VALUES = ("peak", "total", "activations")
_MIN = 1_000
"""A change by a smaller part is not reported: Python and the libraries allocate too."""
_OF_TOTAL, _MOST_OF_TOTAL = 100, 1 << 18
"""A change of the total up to a hundredth of it, and up to 256 KiB, is not reported either. Some hundred steps may lie between
two samples, in which Python and the libraries allocate about that much. So does gradtui at the first freeze of a run."""
_CHANGES = 32
"""Changes between which samples are compared."""
_TIME_PATIENCE = 200
"""Rounds after which a receipt waits no longer for their durations."""


@dataclass(frozen=True)
class Baseline:
    """The measurements before a change."""

    memories: tuple[StepMemory, ...]
    """Of the sampled rounds since the change before, the newest last."""
    widths: Mapping[str, int]
    """How far each value varied between any two changes; without the values of which no two samples could be compared."""
    durations: tuple[float, ...]
    """Of the newest rounds that were not sampled, in seconds, since the change before."""

    def within_noise(self, after: StepMemory) -> tuple[str, ...]:
        """Return the names of the values that differ from those before the change by no more than these varied.

        The activations, and with them the peak, depend on the batch, for example on the length of its longest sequence.
        """
        return tuple(name for name in _VALUES if self._is_within_noise(name, after))

    def _is_within_noise(self, name: str, memory: StepMemory) -> bool:
        before: list[int] = [value for each in self.memories if (value := _value(each, name)) is not None]
        after = _value(memory, name)
        if not before or after is None:
            return False
        others = 0
        if name == "total" and memory.apart is None:
            others = min(max(before) // _OF_TOTAL, _MOST_OF_TOTAL)
        width = max(self.widths.get(name, 0), max(before) - min(before), max(before) // _MIN, others)
        return min(before) - width <= after <= max(before) + width

    def attributed(self, after: StepMemory) -> StepMemory:
        """Return the memory after a change with as much of what no command changes as there was before it.

        The script, Python and the libraries allocate meanwhile, and some hundred steps may lie between two samples.
        """
        apart = self.memories[-1].apart
        if apart is None or after.apart is None or after.total is None:
            return after
        return replace(after, total=after.total - after.apart + apart, apart=apart)

    def has_such_batches(self, after: StepMemory) -> bool:
        """Return whether the batches after a change have a size as before it, as far as these are known to vary."""
        before = [each.inputs for each in self.memories if each.inputs is not None]
        if not before or after.inputs is None:
            return True
        width = max(before) - min(before)
        return min(before) - width <= after.inputs <= max(before) + width

    def comparable(self, memory: StepMemory) -> StepMemory:
        """Return the memory without the values that depend on the batch, and of which it is not known how much.

        The total when backward ends does not depend on it: the activations are freed by then.
        """
        return replace(
            memory,
            peak=memory.peak if "peak" in self.widths else None,
            activations=memory.activations if "activations" in self.widths else None,
        )


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
    has_such_batches: bool = True
    """The batches after it have a size as before it."""


class Receipts:
    """Compares sampled steps and the durations of other steps before and after each change.

    A receipt comes with the second sampled round after its change, and once more if the duration of a step has changed. A later
    change ends those before it: the measurements could not distinguish their effects. The receipts call nothing at a step: they
    read the durations that `StepTime` keeps anyway, and `poll` is called when events are flushed.
    """

    def __init__(self, context: ProbeContext, step_sampler: StepSampler) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._sampler, self._time = step_sampler, step_sampler.step_time
        self.open: list[_Open] = []
        """The changes whose effect is not known completely."""
        self._changed_at = 0
        """`StepTime.count` at the newest change."""
        self._changes: deque[int] = deque([0], maxlen=_CHANGES)
        """The steps before the boundaries of the newest changes and lists of models."""

    def tree_changed(self, step: int) -> None:
        """Drop all receipts, since other models are measured after step `step`."""
        self.open.clear()
        self._changes.append(step)

    def baseline(self) -> Baseline:
        """Return the measurements before a change that is about to be made."""
        length, memories = self._view.round_length, self._samples()
        # The first round after a change may lack some of the optimizer state, and the first of the run lacks all of it.
        settled = [each for each in memories if each.step > self._changes[-1] + length]
        newest = [each if each.step > length else replace(each, peak=None, total=None) for each in memories[-length:]]
        rounds = _rounds(settled or newest, length)
        return Baseline(tuple(rounds), self._widths(), tuple(self._undisturbed(self._changed_at)[-_TIME_ROUNDS:]))

    def can_measure(self, joined: bool, *, is_of_activations: bool) -> bool:
        """Return whether a change that is made now would get a receipt: there must be something to compare with."""
        if any(not each.is_emitted for each in self.open):
            return True
        baseline = self.baseline()
        if not baseline.memories or is_of_activations or joined:
            return bool(baseline.memories)
        before = baseline.comparable(baseline.memories[-1])
        return any(getattr(before, name) is not None for name in _VALUES)

    def _samples(self) -> list[StepMemory]:
        """Return the memory of the sampled steps. The first step counts twice until its optimizer is known."""
        return list({each.step: each for each in self._sampler.memories}.values())

    def _widths(self) -> dict[str, int]:
        """Return how far each value varied between any two changes, as far as there were two samples."""
        widths: dict[str, int] = {}
        for _, between in groupby(self._samples(), lambda each: bisect_left(self._changes, each.step)):
            rounds = _rounds([*between], self._view.round_length)
            for name in _VALUES:
                # All of the optimizer state is there from the second round on, the activations in the first.
                settled = rounds if name == "activations" else rounds[1:]
                values = [value for each in settled if (value := _value(each, name)) is not None]
                if 1 < len(values) == len(settled):
                    widths[name] = max(widths.get(name, 0), max(values) - min(values))
        return widths

    def begin(
        self,
        command: int,
        title: str,
        step: int,
        joined: tuple[tuple[str, int], ...] = (),
        baseline: Baseline | None = None,
        *,
        since: int | None = None,
        is_of_activations: bool = False,
    ) -> None:
        """Begin the receipt of a change that was made at the boundary after step `step`.

        It is measured together with the changes since `since` whose memory has not been measured yet.

        Args:
            command: the id of the command.
            title: what was changed, in words.
            step: the last step before the change.
            joined: the optimizers that parameters joined, each with their number.
            baseline: the measurements before it, if they were taken earlier.
            since: the last step before the command, if its change was made later.
            is_of_activations: whether it changes what autograd keeps for backward in any case.
        """
        first = step if since is None else since
        here = [each for each in self.open if each.step >= first and not each.is_emitted]
        for each in self.open:
            if each not in here:
                self._settle(each, step, is_over=True)
            else:
                each.step, each.counted = step, self._time.count
        if baseline is None:
            baseline = here[0].baseline if here else self.baseline()
        self._changed_at = self._time.count
        self._changes.append(step)
        self.open = here
        if baseline.memories:
            before = baseline.memories[-1]
            effect = Effect(before=before if is_of_activations else baseline.comparable(before), joined=joined)
            self.open.append(_Open(command, title, step, self._time.count, baseline, effect))
        for each in self.open:
            each.effect = replace(each.effect, others=len(self.open) - 1)

    def poll(self, step: int, *, is_over: bool = False) -> None:
        """Emit the measurements of the open changes that are complete. `is_over`: there will be no further step."""
        self.open = [each for each in self.open if not self._settle(each, step, is_over=is_over)]

    def _settle(self, receipt: _Open, step: int, *, is_over: bool) -> bool:
        """Emit the measurements of a change that are complete. Return True if the receipt is finished."""
        rounds = (step - receipt.step) // self._view.round_length
        if not receipt.is_emitted:
            is_over = is_over or rounds >= _MEMORY_PATIENCE
            after = self._memory_after(receipt, is_over=is_over)
            if after is None:
                return is_over
            receipt.is_emitted, before = True, receipt.effect.before
            after = receipt.baseline.attributed(after)
            receipt.has_such_batches = receipt.baseline.has_such_batches(after)
            if before is not None and not receipt.has_such_batches:
                before = replace(before, peak=None, activations=None)
            noise = receipt.baseline.within_noise(after)
            receipt.effect = replace(receipt.effect, before=before, after=after, within_noise=noise)
            self._say(receipt, step, receipt.effect)
        if not receipt.has_such_batches:
            return True
        durations = self._undisturbed(receipt.counted)
        # Once all kept durations are of steps since the change, further steps add no rounds.
        has_all = is_over or self._time.count - receipt.counted - VERIFY_STEPS >= len(self._time.newest)
        if len(durations) < (MIN_STEPS if has_all else _TIME_ROUNDS):
            return is_over or rounds >= _TIME_PATIENCE
        change = time_change(receipt.baseline.durations, durations[-_TIME_ROUNDS:])
        if change is not None:
            receipt.effect = replace(receipt.effect, time=change)
            self._say(receipt, step, Effect(time=change))
        return True

    def _memory_after(self, receipt: _Open, *, is_over: bool) -> StepMemory | None:
        """Return the memory of the newest sampled round since a change; None until it shows all of the effect."""
        length = self._view.round_length
        after = [each for each in self._samples() if each.step > receipt.step]
        if not after or not (is_over or after[-1].step >= receipt.step + _MEMORY_ROUNDS * length):
            return None
        return _rounds(after, length)[-1]

    def _say(self, receipt: _Open, step: int, new: Effect) -> None:
        """Emit a receipt whose text has only what is `new`."""
        text = effect_text(new)
        if text:
            words = f"{receipt.title}: {text}"
            self._emit(ReceiptTaken(self._clock.at(), step, receipt.command, words, True, receipt.effect))

    def _undisturbed(self, changed_at: int) -> list[float]:
        """Return the durations of the rounds since a change, as a count of steps, without those in which it is verified."""
        return self._durations(min(changed_at + VERIFY_STEPS, self._time.count))

    def _durations(self, since: int) -> list[float]:
        """Return the durations of the rounds since a count of steps that were not sampled, oldest first.

        Any steps that follow each other, as many as a round has, take the time of a round.
        """
        length = self._view.round_length
        newest = self._time.newest
        steps = list(islice(newest, max(0, len(newest) - (self._time.count - since)), None))
        sums = [math.fsum(steps[end - length : end]) for end in range(len(steps), length - 1, -length)]
        return [seconds for seconds in reversed(sums) if not math.isnan(seconds)]


def _value(memory: StepMemory, name: str) -> int | None:
    """Return a value of `_VALUES`, of the total only what a command may change."""
    value: int | None = getattr(memory, name)
    return value - memory.apart if name == "total" and value is not None and memory.apart is not None else value


def _rounds(steps: Sequence[StepMemory], length: int) -> list[StepMemory]:
    """Return the memory of each round of `length` steps, oldest first. The first round may lack steps."""
    ends = range(len(steps), 0, -length)
    return [reduce(StepMemory.joined, steps[max(0, end - length) : end]) for end in reversed(ends)]


def joined_optimizers(changes: Sequence[Changed], optimizers: Sequence[Optimizer]) -> tuple[tuple[str, int], ...]:
    """Return the optimizers that parameters have joined in these changes, each with the number of parameters."""
    counts = Counter(index for changed in changes for _, index, _ in changed.joined)
    return tuple((type(optimizers[index]).__name__, count) for index, count in counts.items())
