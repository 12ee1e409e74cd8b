"""The settings of param groups at a step, from readings that may come some steps after a change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gradtui.protocol.events import GroupsRead
from gradtui.protocol.vocabulary import GroupSettings


class GroupHistory:
    """Keeps the readings that rows of later steps need."""

    def __init__(self) -> None:
        self._readings: deque[GroupsRead] = deque()

    def take(self, reading: GroupsRead) -> None:
        """Keep a reading."""
        self._readings.append(reading)

    def forget_before(self, step: int) -> None:
        """Drop the readings that say nothing of `step` or of any later one."""
        while len(self._readings) > 1 and self._readings[1].step <= step:
            self._readings.popleft()

    def at(self, step: int) -> tuple[tuple[GroupSettings, ...], ...]:
        """Return the settings of each group of each optimizer; None for a setting that changed before or after this step."""
        later: GroupsRead | None = None
        for reading in reversed(self._readings):
            if reading.step <= step:
                is_between = later is not None and later.before is not None and later.before < step
                return _common(reading, later) if is_between and later is not None else reading.optimizers
            later = reading
        return ()


def _common(reading: GroupsRead, later: GroupsRead) -> tuple[tuple[GroupSettings, ...], ...]:
    """Return the groups that both readings have, with the settings that are the same in both."""
    return tuple(
        tuple(
            GroupSettings(
                _same(old, new, lambda each: each.learning_rate), _same(old, new, lambda each: each.weight_decay)
            )
            for old, new in zip(*groups)
        )
        for groups in zip(reading.optimizers, later.optimizers)
    )


def _same(old: GroupSettings, new: GroupSettings, of: Callable[[GroupSettings], float | None]) -> float | None:
    return of(old) if of(old) == of(new) else None
