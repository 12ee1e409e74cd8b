"""A horizontal bar of stacked parts at an eighth of a cell, with a mark for a peak beyond its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.tui.lines import Line, Span

_EIGHTHS = " ▏▎▍▌▋▊▉"
_PEAK = "▲"
_TO_PEAK = "╌"


def stacked_bar(
    parts: Sequence[tuple[str, float]], full: float, width: int, peak: float | None = None, patterns: str = ""
) -> Line:
    """A bar in exactly `width` cells.

    Args:
        parts: (role, size) from left to right; sizes below zero take no room.
        full: the size that fills the whole width.
        peak: where a mark stands, if that is beyond the last part.
        patterns: one character per part, for screens without colour; each then takes whole cells.
    """
    if width <= 0 or full <= 0:
        return ((" " * max(0, width), ""),)
    ends, total = [], 0.0
    for _, size in parts:
        total += max(0.0, size)
        ends.append(min(8 * width, round(total / full * 8 * width)))
    roles = [role for role, _ in parts]
    spans = _patterned(roles, ends, patterns) if patterns else _coloured(roles, ends)
    used = sum(len(text) for text, _ in spans)
    mark = min(width - 1, int(peak / full * width)) if peak is not None else -1
    if mark >= used:
        spans += [(_TO_PEAK * (mark - used), "faint"), (_PEAK, "warning")]
        used = mark + 1
    return (*spans, (" " * (width - used), ""))


def _coloured(roles: Sequence[str], ends: Sequence[int]) -> list[Span]:
    spans: list[Span] = []
    start = 0
    for index, (role, end) in enumerate(zip(roles, ends)):
        if end <= start:
            continue
        first = -(-start // 8)
        whole = end // 8 - first
        if whole > 0:
            spans.append(("█" * whole, role))
        rest = end % 8
        if rest and end // 8 >= first:
            # A cell that two parts share is the left one's block on the right one's colour.
            later = next((r for r, e in zip(roles[index + 1 :], ends[index + 1 :]) if e > end), None)
            spans.append((_EIGHTHS[rest], f"{role} on {later}" if later else role))
        start = end
    return spans


def _patterned(roles: Sequence[str], ends: Sequence[int], patterns: str) -> list[Span]:
    spans: list[Span] = []
    start = 0
    for role, end, pattern in zip(roles, ends, patterns):
        cells = round(end / 8) - round(start / 8)
        if cells > 0:
            spans.append((pattern * cells, role))
        start = end
    return spans
