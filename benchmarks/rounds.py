"""Contenders that take turns, and what may be said of them: a ratio to a baseline of the same rounds, never a time by itself.

The order turns by one place each round, so that no contender is always the first, or always after the same one.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Sample = Mapping[str, float]
"""Quantity -> value, as one run of a contender has measured it."""


class Absent(Exception):  # noqa: N818 - no error: a contender that is not installed is reported and left out
    """A contender cannot take part; the message says why."""


class NoBaseline(Exception):  # noqa: N818
    """There is no figure of the baseline to compare with."""


@dataclass(frozen=True)
class Comparison:
    """A contender beside the baseline in one quantity. `ratio` and `more` are medians of the rounds' own."""

    name: str
    ratio: float
    lowest: float
    highest: float
    more: float
    """Difference to the baseline, in the quantity's unit."""
    value: float
    baseline: float
    rounds: int


class Rounds:
    """What the contenders measured, round by round, and their comparison with the one called `baseline`."""

    def __init__(self, baseline: str) -> None:
        self.baseline = baseline
        self.absent: dict[str, str] = {}
        """Contender -> why it did not take part."""
        self._rounds: list[dict[str, Sample]] = []

    def take_turns(self, contenders: Mapping[str, Callable[[], Sample]], rounds: int) -> None:
        """Run every contender once a round. One that is `Absent` once is left out from then on."""
        names = list(contenders)
        for number in range(rounds):
            row: dict[str, Sample] = {}
            turned = names[number % len(names) :] + names[: number % len(names)]
            for name in turned:
                if name in self.absent:
                    continue
                self._show(f"round {number + 1} of {rounds}: {name}")
                try:
                    row[name] = contenders[name]()
                except Absent as why:
                    self.absent[name] = str(why)
            self._rounds.append(row)
        self._show("")

    @staticmethod
    def _show(text: str) -> None:
        """How far it is, for a person who waits."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text}")

    def median(self, name: str, quantity: str) -> float:
        """Of what a contender measured by itself; for ratios and counts, not for times."""
        return statistics.median(row[name][quantity] for row in self._rounds if name in row)

    def compare(self, name: str, quantity: str) -> Comparison:
        """Raises NoBaseline if there is no round with both the contender and the baseline."""
        pairs = [
            (row[name][quantity], row[self.baseline][quantity])
            for row in self._rounds
            if name in row and self.baseline in row
        ]
        if not pairs:
            raise NoBaseline(f"{name}: no round of it and of {self.baseline!r}; its {quantity} is not shown alone")
        ratios = sorted(value / base for value, base in pairs)
        return Comparison(
            name,
            statistics.median(ratios),
            ratios[0],
            ratios[-1],
            statistics.median(value - base for value, base in pairs),
            statistics.median(value for value, _ in pairs),
            statistics.median(base for _, base in pairs),
            len(pairs),
        )

    def present(self) -> list[str]:
        """Who took part, the baseline first, in the order of the first round's contenders."""
        seen = dict.fromkeys(name for row in self._rounds for name in row)
        return sorted(seen, key=lambda name: name != self.baseline)

    def print_absent(self) -> None:
        """A line for each contender that did not take part."""
        for name, why in self.absent.items():
            print(f"  {name:<28} left out: {why}")


def most_lie_between(values: Iterable[float]) -> tuple[float, float]:
    """Between what 19 of 20 of these lie."""
    ordered = sorted(values)
    cut = len(ordered) // 40
    return ordered[cut], ordered[-cut - 1]


def time_text(seconds: float) -> str:
    """A time with its unit, three digits or so."""
    for unit, factor in (("s ", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(seconds) * factor >= 1 or unit == "µs":
            return f"{seconds * factor:8.1f} {unit}"
    raise AssertionError
