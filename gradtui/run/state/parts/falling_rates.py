"""Since when the learning rates of an optimizer have been a small part of their highest value. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import GroupSettings


@dataclass
class FallingRate:
    """The highest learning rate of an optimizer's groups, and when it fell below powers of ten of its maximum."""

    highest: float = 0.0
    since: dict[int, int] = field(default_factory=dict)
    """By power of ten: the first step since which the rate has been below that part of the maximum."""

    def take(self, groups: Sequence[GroupSettings], step: int) -> None:
        """Take the settings with which the optimizer has worked since a step."""
        rates = [group.learning_rate for group in groups if isinstance(group.learning_rate, float)]
        if not rates or len(rates) < len(groups):
            self.highest, self.since = 0.0, {}
            return
        rate = max(rates)
        if rate > self.highest:
            self.highest, self.since = rate, {}
            return
        falls = math.floor(-math.log10(rate / self.highest)) if rate > 0 else 0
        self.since = {power: first for power, first in self.since.items() if power <= falls}
        for power in range(1, falls + 1):
            self.since.setdefault(power, step)
