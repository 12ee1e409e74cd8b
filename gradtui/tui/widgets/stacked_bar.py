"""A horizontal bar of stacked parts, with a mark for a peak beyond its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.tui.rendering import Line, Span

FULL = "▇"
"""Seven eighths of a cell high, so that bars in adjacent rows stay apart."""

_PEAK = "▲"
_TO_PEAK = "╌"


def stacked_bar(
    parts: Sequence[tuple[str, float]], full: float, width: int, peak: float | None = None, patterns: str = ""
) -> Line:
    """Return a bar in exactly `width` cells.

    Args:
        parts: (role, size) from left to right; a size below zero takes no room.
        full: the size that fills the whole width.
        peak: the position of the peak mark, shown if it is beyond the last part.
        patterns: one character per part, for screens without colour.
    """
    if width <= 0 or full <= 0:
        return ((" " * max(0, width), ""),)
    spans: list[Span] = []
    total, used = 0.0, 0
    for (role, size), pattern in zip(parts, patterns or FULL * len(parts)):
        total += max(0.0, size)
        end = round(min(1.0, total / full) * width)
        if end > used:
            spans.append((pattern * (end - used), role))
            used = end
    mark = min(width - 1, int(min(1.0, peak / full) * width)) if peak is not None else -1
    if mark >= used:
        spans += [(_TO_PEAK * (mark - used), "faint"), (_PEAK, "warning")]
        used = mark + 1
    return (*spans, (" " * (width - used), ""))
