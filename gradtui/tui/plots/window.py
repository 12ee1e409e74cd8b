"""Which part of an axis is in sight: zoom and pan. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIN_SPAN = 8.0
"""Steps (or layers): nothing is to be seen in less."""
_SHARE_OF_A_PAN = 4


@dataclass(frozen=True)
class Window:
    """So much of an axis, ending at a place.

    `span` None is everything there is; `end` None stays with the newest as the run goes on.
    """

    span: float | None = None
    end: float | None = None

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """What is in sight of an axis that goes from `low` to `high`; always within it."""
        whole = high - low
        if self.span is None or self.span >= whole:
            return low, high
        end = high if self.end is None else min(high, max(low + self.span, self.end))
        return max(low, end - self.span), end

    def zoomed(self, factor: float, low: float, high: float) -> Window:
        """`factor` times as much in sight: around the middle, or up to the newest where that is in sight."""
        first, last = self.ends(low, high)
        span = max(min(MIN_SPAN, high - low), (last - first) * factor)
        if span >= high - low:
            return Window()
        if self.end is None:
            return Window(span)
        return self._ending(span, (first + last + span) / 2, low, high)

    def panned(self, direction: int, low: float, high: float) -> Window:
        """A quarter of what is in sight further, towards the newest (1) or the oldest (-1)."""
        if self.span is None or self.span >= high - low:
            return self
        _, last = self.ends(low, high)
        return self._ending(self.span, last + direction * self.span / _SHARE_OF_A_PAN, low, high)

    def at_start(self, low: float, high: float) -> Window:
        """As much of it, from the oldest on."""
        return self if self.span is None else self._ending(self.span, low + self.span, low, high)

    def at_end(self) -> Window:
        """As much of it, up to the newest."""
        return replace(self, end=None)

    @staticmethod
    def _ending(span: float, end: float, low: float, high: float) -> Window:
        return Window(span, None if end >= high else max(low + span, end))
