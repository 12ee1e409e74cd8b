"""Divide the host time of each training step into parts that add up to it. Pure: the caller passes events and their times.

A step lasts from the end of one optimizer's step to the end of the next. The first step is left out: it has the setup of the
run, and compiles code or searches for kernels.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gradtui.protocol.step_times import LoaderSettings, PartTime, StepPart, StepTimesMeasured

_KEPT = 256
"""Steps whose times are kept for medians."""
_EDGE, _MIN_EDGE = 64, 4
"""Steps at the start of the run, and at its end, that are compared with each other."""
_AT_ONCE = 32
"""Of steps that are added together, the newest ones whose times are kept."""

# Names of this module's own: on Python 3.11 looking up a member of an enumeration takes 60 ns.
_WAIT, _PREPARE, _FORWARD, _OTHER = StepPart.WAIT, StepPart.PREPARE, StepPart.FORWARD, StepPart.OTHER
_EVALUATION, _SAVING, _GRADTUI = StepPart.EVALUATION, StepPart.SAVING, StepPart.GRADTUI
_PARTS = tuple(StepPart)
_OWN = _PARTS.index(_GRADTUI)
_BETWEEN = (_WAIT, _PREPARE, _OTHER)


class StepTimes:
    """The part that runs now, and the times of the steps so far. Times are nanoseconds of one monotonic clock.

    `own_until` returns the nanoseconds that gradtui's hooks took until a moment. They belong to none of the script's parts.
    """

    def __init__(self, now: int, own_until: Callable[[int], int]) -> None:
        self.part = _OTHER
        self._own_until, self._own = own_until, 0
        self._is_live = True
        self.since = now
        """The time up to which parts have been charged."""
        self._spent = dict.fromkeys(_PARTS, 0)
        """The time of each part of the present step so far."""
        self._arrived = 0
        """The time of `PREPARE` when the newest request of a batch had ended."""
        self._after_loader = _OTHER
        self._interrupted: list[StepPart] = []
        self._has_evaluated = False
        """Whether an evaluation has run since the newest training forward."""
        self._before = dict(self._spent)
        """`_spent` when that forward began, at the end of the step before it, or at the newest request of a batch since."""
        self._is_first = True
        self._is_setup = False
        """What gradtui's hooks take until the next event still belongs to the first step, which has the setup of the run."""
        self.validates = False
        """Whether a model that trains was called in eval mode in the present step."""
        self.steps = self._unsampled = self._with_evaluation = self._with_validation = 0
        self._totals = dict.fromkeys(_PARTS, 0)
        self._usual = dict.fromkeys(_PARTS, 0)
        """The same of the steps that were not sampled."""
        self._newest: deque[Sequence[int]] = deque(maxlen=_KEPT)
        """The time of each part, of steps that were not sampled, since the newest change of the run."""
        self._early: list[Sequence[int]] = []
        self._kept = 0
        """How many times were kept so far."""

    @property
    def kept_steps(self) -> int:
        """The number of steps whose times are kept for medians."""
        return len(self._newest)

    def switch(self, part: StepPart, now: int) -> None:
        """Begin a part."""
        spent = now - self.since
        if self._is_live:
            own, before = self._own_until(now), self._own
            self._own = own
            own = min(max(0, own - before), spent)
            self._spent[_GRADTUI] += 0 if self._is_setup else own
            self._is_setup = False
            spent -= own
        self._spent[self.part] += spent
        self.since, self.part = now, part
        if part is _FORWARD:
            self._before, self._has_evaluated = dict(self._spent), False

    @contextmanager
    def replaying(self, now: int) -> Iterator[None]:
        """Return a context manager for events that happened before `now`: what the hooks took between them is unknown."""
        self._own, self._is_live = self._own_until(now), False
        try:
            yield
        finally:
            self._is_live = True

    def interrupt(self, part: StepPart, now: int) -> None:
        """Begin a part in the middle of another."""
        self._interrupted.append(self.part)
        self.switch(part, now)
        self._has_evaluated |= part is _EVALUATION

    def resume(self, now: int) -> None:
        """End that part: the one before it continues."""
        self.switch(self._interrupted.pop() if self._interrupted else _OTHER, now)

    def wait_began(self, now: int) -> None:
        """Handle the request of a batch. What an evaluation did since the newest forward, batches included, belongs to it."""
        self.switch(_WAIT, now)
        if self._has_evaluated:
            for part in _BETWEEN:
                self._spent[_EVALUATION] += self._spent[part] - self._before[part]
                self._spent[part] = self._before[part]
            # What follows belongs to it too, if one more batch is requested: this was the request that ended its batches.
            self._before = dict(self._spent)

    def wait_ended(self, now: int) -> None:
        """Handle the arrival of a batch, or the end of all batches."""
        if self.part is _WAIT:
            self.switch(_PREPARE, now)
            self._arrived = self._spent[_PREPARE]

    def loader_began(self, now: int) -> None:
        """Handle the start of an iteration over a DataLoader, which may have to start workers.

        What was done since the newest request prepared no batch: that request found none. An evaluation is over, but for the
        batches that follow if one of them is evaluated.
        """
        before = self.part
        self.wait_began(now)
        if before is _PREPARE:
            self._spent[_OTHER] += self._spent[_PREPARE] - self._arrived
            self._spent[_PREPARE] = self._arrived
        self._before, self._has_evaluated = dict(self._spent), False
        self._after_loader = _OTHER if before is _PREPARE else before

    def loader_ended(self, now: int) -> None:
        """Handle that this iteration can begin."""
        self.switch(self._after_loader, now)

    def pause_ended(self, now: int) -> None:
        """Leave out the time since the last event: the user held the run."""
        self.since = now

    def changed(self) -> None:
        """Leave out of the medians what the steps took before a change of the run."""
        self._newest.clear()

    def evaluation_was_training(self, nanoseconds: int) -> None:
        """Count as forward what was counted as an evaluation, since a backward followed it."""
        moved = min(nanoseconds, self._spent[_EVALUATION])
        self._spent[_EVALUATION] -= moved
        self._spent[_FORWARD] += moved
        self._before, self._has_evaluated = dict(self._spent), False

    def step_ended(self, *, is_sampled: bool) -> None:
        """End the present step where the last event was."""
        self._interrupted.clear()
        spent, self._spent = self._spent, dict.fromkeys(_PARTS, 0)
        self._before, self._has_evaluated, self._arrived = dict(self._spent), False, 0
        validates, self.validates = self.validates, False
        if self._is_first:
            self._is_first, self._is_setup = False, self._is_live
            return
        self.steps += 1
        self._with_evaluation += spent[_EVALUATION] > 0
        self._with_validation += validates
        for part, nanoseconds in spent.items():
            self._totals[part] += nanoseconds
        if not is_sampled:
            for part, nanoseconds in spent.items():
                self._usual[part] += nanoseconds
            self._unsampled += 1
            self._keep([tuple(spent.values())])

    def went_round(self, parts: Sequence[StepPart], times: Sequence[int]) -> None:
        """Add steps of the same events each. `parts` are the parts that end with these events, and `times` those of the events.

        `times` begin with the end of the step before the first of them.
        """
        count = len(parts)
        rounds = (len(times) - 1) // count
        newest = times[-1 - min(rounds, _AT_ONCE) * count :]
        rows = {part: [0] * min(rounds, _AT_ONCE) for part in _PARTS}
        for index, part in enumerate(parts):
            spent = sum(times[index + 1 :: count]) - sum(times[index:-1:count])
            self._totals[part] += spent
            self._usual[part] += spent
            ends, begins = newest[index + 1 :: count], newest[index:-1:count]
            rows[part] = [before + end - begin for before, end, begin in zip(rows[part], ends, begins)]
        self.steps += rounds
        self._unsampled += rounds
        self.since = times[-1]
        self._keep([*zip(*rows.values())])

    def _keep(self, rows: list[tuple[int, ...]]) -> None:
        self._newest.extend(rows)
        self._kept += len(rows)
        if len(self._early) < _EDGE:
            self._early += rows[: _EDGE - len(self._early)]

    def measured(
        self,
        at: float,
        step: int,
        loader: LoaderSettings | None,
        threads: int | None = None,
        *,
        anomaly_detection: bool = False,
        round_length: int = 1,
    ) -> StepTimesMeasured:
        """Return the times of all steps so far. An evaluation or a save since the last step is included.

        Where optimizers take turns, a round has `round_length` steps of different models. The medians are then of the mean step
        of each round: that of all steps would be a step of one of the optimizers.
        """
        edge = min(_EDGE, self._kept // 4)
        ends = ([], []) if edge < _MIN_EDGE else (self._early[:edge], [*self._newest][-edge:])
        kept, first, last = (_means(rows, round_length) for rows in (self._newest, *ends))
        newest, early, late = ([*zip(*rows)] or [()] * len(_PARTS) for rows in (kept, first, last))
        since = {_EVALUATION: self._spent[_EVALUATION], _SAVING: self._spent[_SAVING]}
        parts = [
            PartTime(
                part,
                (self._totals[part] + since.get(part, 0)) / 1e9,
                self._usual[part] / 1e9,
                _quantile(newest[index], 0.5),
                _quantile(newest[index], 0.95),
                _quantile(early[index], 0.5),
                _quantile(late[index], 0.5),
            )
            for index, part in enumerate(_PARTS)
        ]
        early_step, late_step = (_quantile([sum(row) - row[_OWN] for row in rows], 0.5) for rows in (first, last))
        return StepTimesMeasured(
            at,
            step,
            self.steps,
            self._unsampled,
            self._with_evaluation,
            tuple(parts),
            loader,
            threads,
            early_step,
            late_step,
            self._with_validation,
            anomaly_detection,
        )


def _means(rows: Sequence[Sequence[int]], length: int) -> Sequence[Sequence[float]]:
    """Return the means of the steps of each round, column by column."""
    if length == 1:
        return rows
    steps = [*rows]
    return [
        tuple(sum(column) / length for column in zip(*steps[at : at + length]))
        for at in range(0, len(steps) - length + 1, length)
    ]


def _quantile(nanoseconds: Sequence[float], fraction: float) -> float | None:
    """Return the nearest-rank quantile in seconds; None of nothing."""
    if not nanoseconds:
        return None
    return sorted(nanoseconds)[math.ceil(fraction * len(nanoseconds)) - 1] / 1e9
