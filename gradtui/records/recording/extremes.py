"""Which lines and steps of a recording have the first, smallest and largest values of the run. Pure."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.events import Event, GradientsMeasured, MemoryMeasured, StepMemoryMeasured, StepsMeasured
from gradtui.protocol.json_values import fields_of

_Key = tuple[str, object]
"""A figure, and the optimizer or the phase whose it is."""
_Place = tuple[float, int, int]
"""A value, its step, and the number of its line."""

_MAX_OPTIMIZERS = 64
"""Those of later optimizers count together: a script may make one for each batch, and its every step would stay."""
_MEMORY = "memory of a step"
_OPTIMIZER = 1 + fields_of(GradientsMeasured).index("optimizer")


@dataclass
class Extremes:
    """The first, the smallest and the largest value of each figure. Values that are not finite are none of them."""

    _first: dict[_Key, _Place] = field(default_factory=dict)
    _smallest: dict[_Key, _Place] = field(default_factory=dict)
    _largest: dict[_Key, _Place] = field(default_factory=dict)

    def take(self, event: Event | None, line: int) -> None:
        """Take the figures of an event with memory, or with losses and norms of steps."""
        if isinstance(event, MemoryMeasured):
            self._take("peak", event.phase, ((event.peak, event.step),), line)
        elif isinstance(event, StepMemoryMeasured):
            self._take(_MEMORY, None, ((totals.peak, totals.step) for totals in event.totals), line)
        elif isinstance(event, StepsMeasured):
            for losses in event.losses:
                self._take("loss", _whose(losses.optimizer), zip(losses.losses, losses.steps), line)
            for figures in event.figures:
                whose = _whose(figures.optimizer)
                self._take("loss", whose, ((figures.loss, figures.step),), line)
                self._take("norm", whose, ((figures.total, figures.step),), line)

    def take_norms(self, text: bytes, line: int) -> None:
        """Take loss and total of a line with a `GradientsMeasured`, whose norms are not parsed: it may have very many."""
        head, _, rest = text.partition(b",[")
        # gradtui itself has written the line, so that the order of the fields is known.
        with contextlib.suppress(ValueError, LookupError):
            row = json.loads(head + b",null" + rest.partition(b"]")[2] if rest else text)
            step, (total, loss), optimizer = row[2], row[4:6], row[_OPTIMIZER] if len(row) > _OPTIMIZER else -1
            self._take("loss", _whose(optimizer), ((loss, step),), line)
            self._take("norm", _whose(optimizer), ((total, step),), line)

    def _take(self, name: str, of: object, values: Iterable[tuple[float | None, int]], line: int) -> None:
        known = [(value, step, line) for value, step in values if value is not None and _is_finite(value)]
        if not known:
            return
        key, smallest, largest = (name, of), min(known), max(known)
        self._first.setdefault(key, known[0])
        if smallest[0] < self._smallest.setdefault(key, smallest)[0]:
            self._smallest[key] = smallest
        if largest[0] > self._largest.setdefault(key, largest)[0]:
            self._largest[key] = largest

    def lines(self) -> set[int]:
        """Return the numbers of the lines that have them."""
        return {line for places in self._all() for _, _, line in places.values()}

    def steps(self, *, of_memory: bool) -> frozenset[int]:
        """Return the steps that have them: of the memory of a step, or of its loss and norm."""
        return frozenset(
            step
            for places in self._all()
            for (name, _), (_, step, _) in places.items()
            if (name == _MEMORY) is of_memory
        )

    def _all(self) -> tuple[dict[_Key, _Place], ...]:
        return self._first, self._smallest, self._largest


def _whose(optimizer: int) -> int:
    return min(optimizer, _MAX_OPTIMIZERS)


def _is_finite(value: object) -> bool:
    # What is not finite is a word in a line of JSON.
    return isinstance(value, (int, float)) and math.isfinite(value)
