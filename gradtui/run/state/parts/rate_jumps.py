"""Tell jumps of the learning rates from schedules that move them all the time. Pure; owned by one thread."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.events import GroupsRead

JUMPS_KEPT = 256
MIN_FACTOR = 1.5
"""A smaller change is not a jump."""


@dataclass(frozen=True)
class RateJump:
    """A learning rate that differs from `step` on."""

    step: int
    optimizer: int
    group: int
    before: float
    after: float


class RateJumps:
    """The jumps of all learning rates, oldest first.

    A change is a jump if it is at least by `MIN_FACTOR`, or from or to zero, and if neither the reading before it nor the one
    after it shows another change of the same group. A scheduler that changes the rate at every step (warm-up, cosine) has no
    jumps, however far apart the readings are; one that divides it by ten at a milestone has one there.
    """

    def __init__(self) -> None:
        self.jumps: list[RateJump] = []
        self._changed: dict[tuple[int, int], int] = {}
        """By index of optimizer and group: the step of the last reading that changed its rate."""

    def take(self, earlier: GroupsRead, event: GroupsRead) -> None:
        """Compare two readings of the settings, one after the other."""
        for optimizer, groups in enumerate(event.optimizers[: len(earlier.optimizers)]):
            for group, (old, new) in enumerate(zip(earlier.optimizers[optimizer], groups)):
                before, after = old.learning_rate, new.learning_rate
                if before is not None and after is not None and before != after:
                    self._changes(RateJump(event.step, optimizer, group, before, after), event.before)
        del self.jumps[:-JUMPS_KEPT]

    def _changes(self, change: RateJump, last_reading: int | None) -> None:
        key = change.optimizer, change.group
        previous, self._changed[key] = self._changed.get(key), change.step
        if previous is not None and previous == last_reading:
            self.jumps = [each for each in self.jumps if (each.optimizer, each.group, each.step) != (*key, previous)]
        elif _is_large(change.before, change.after):
            self.jumps.append(change)


def _is_large(before: float, after: float) -> bool:
    low, high = sorted((abs(before), abs(after)))
    return high >= MIN_FACTOR * low
