"""The visible part of an axis: zoom and pan. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.dataclass import dataclass

MIN_SPAN = 8.0
"""The smallest visible range, in steps (or layers): less would show nothing."""
_SHARE_OF_A_PAN = 4
_ROUNDING = 1e-12
"""Error of the ends of a window, relative to the end of the axis: a place at an end is visible all the same."""


@dataclass(frozen=True)
class Window:
    """The visible part of an axis, given by its length and its end.

    A `span` of None is the whole axis; an `end` of None follows the newest steps as the run continues.
    """

    span: float | None = None
    end: float | None = None

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Return the visible part of an axis from `low` to `high`; it never exceeds the axis."""
        whole = high - low
        if self.span is None or self.span >= whole:
            return low, high
        end = high if self.end is None else min(high, max(low + self.span, self.end))
        return max(low, end - self.span), end

    def zoomed(
        self, factor: float, low: float, high: float, around: float | None = None, least: float = MIN_SPAN
    ) -> Window:
        """Return a window of `factor` times the length, of `least` at least.

        The place `around` stays where it is if it is visible. Else the window ends with the newest step if that is visible,
        and has the same middle otherwise.
        """
        first, last = self.ends(low, high)
        span = max(min(least, high - low), (last - first) * factor)
        if span >= high - low:
            return Window()
        rounding = _ROUNDING * (1 + abs(high))
        if around is not None and first - rounding <= around <= last + rounding and last > first:
            return self._ending(span, around + (last - around) * span / (last - first), low, high)
        if self.end is None:
            return Window(span)
        return self._ending(span, (first + last + span) / 2, low, high)

    def panned(self, direction: int, low: float, high: float) -> Window:
        """Return the window moved by a quarter of its length, towards the newest (1) or the oldest (-1)."""
        if self.span is None or self.span >= high - low:
            return self
        _, last = self.ends(low, high)
        return self._ending(self.span, last + direction * self.span / _SHARE_OF_A_PAN, low, high)

    def showing(self, place: float, low: float, high: float) -> Window:
        """Return the window, moved as far as needed to show a place and a quarter of its length beyond."""
        first, last = self.ends(low, high)
        if self.span is None or first <= place <= last:
            return self
        beyond = self.span / _SHARE_OF_A_PAN
        return self._ending(self.span, place + (beyond if place > last else self.span - beyond), low, high)

    def at_start(self, low: float, high: float) -> Window:
        """Return a window of the same length at the start of the axis."""
        return self if self.span is None else self._ending(self.span, low + self.span, low, high)

    def at_end(self) -> Window:
        """Return a window of the same length that follows the newest steps."""
        return replace(self, end=None)

    @staticmethod
    def _ending(span: float, end: float, low: float, high: float) -> Window:
        return Window(span, None if end >= high else max(low + span, end))
