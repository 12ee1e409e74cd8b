"""Lines of text with roles instead of colours. Panels produce them in pure code, and widgets turn them into strips. Pure.

A span is a text and the name of its role (see `palette`); `a on b` is the colour of role a on the colour of role b. `linked`
gives a role that also says which line of a file its text names.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote

from rich.cells import cell_len, chop_cells, set_cell_size

from gradtui.dataclass import dataclass
from gradtui.system.printable import printable as printable

Span = tuple[str, str]
Line = tuple[Span, ...]

BLANK: Line = (("", ""),)
_LABEL_WIDTH = 11
_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "×"
_LINK = "link "
_PLACE = re.compile(r"(?:^|(?<=[\s\[]))(/[^:\[\]]*|[^\s:\[\]/][^\s:\[\]]*\.\w+):([0-9]{1,9})(?![\w.])")
"""`FILE:LINE`. A relative path has a suffix and no blank."""
_MIN_RANGE = 0.3
"""Decades. A curve that changes by less than a factor of two is drawn flat, so that it does not seem to move."""


def linked(role: str, file: str, line: int) -> str:
    """Return a role for a text that names a line of a file. The text is a link where the terminal opens them."""
    return f"{_LINK}{quote(file, errors='replace')}#{line}|{role}"


def linked_places(text: str, role: str, directory: str = "") -> Line:
    """Return a text as spans, in which each `FILE:LINE` is a link where the terminal opens them.

    Args:
        text: without control characters.
        role: the role of all spans.
        directory: what relative paths are relative to; they are no links if it is empty.
    """
    spans: list[Span] = []
    end = 0
    for place in _PLACE.finditer(text):
        if directory or os.path.isabs(place[1]):
            file = os.path.join(directory, place[1])
            spans += [(text[end : place.start()], role), (place[0], linked(role, file, int(place[2])))]
            end = place.end()
    return (*spans, (text[end:], role))


def place_in(role: str) -> tuple[str, str]:
    """Return the place that `linked` has put into a role, as its quoted path and line, or ""; and the role without it."""
    if not role.startswith(_LINK):
        return "", role
    place, _, plain = role[len(_LINK) :].partition("|")
    return place, plain


def width_of(text: str) -> int:
    """Return the width of a text in cells."""
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Iterable[Span]) -> int:
    """Return the width of a line in cells."""
    return sum(width_of(text) for text, _ in line)


def elide(text: str, width: int) -> str:
    """Return the beginning of a text in at most `width` cells, with an ellipsis if it was cut."""
    if width_of(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def elide_start(text: str, width: int) -> str:
    """Return the end of a text with an ellipsis if it was cut; for paths, whose end says more."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    kept = text[-(width - 1) :] if width > 1 else ""
    while width_of(kept) > width - 1:
        kept = kept[1:]
    return "…" + kept


def pad(text: str, width: int) -> str:
    """Pad or cut the text to exactly `width` cells, aligned left."""
    cut = elide(text, width)
    return cut + " " * (width - width_of(cut))


def pad_start(text: str, width: int) -> str:
    """Pad or cut the text to exactly `width` cells, aligned right."""
    cut = elide(text, width)
    return " " * (width - width_of(cut)) + cut


def fit(line: Iterable[Span], width: int) -> Line:
    """Pad the line to exactly `width` cells, or cut it with an ellipsis."""
    fitted: list[Span] = []
    room = width
    for text, role in line:
        taken = width_of(text)
        if taken > room:
            fitted.append((pad(text, room), role))
            room = 0
            break
        if text:
            fitted.append((text, role))
        room -= taken
    if room:
        fitted.append((" " * room, ""))
    return tuple(fitted)


def cut(line: Iterable[Span], width: int) -> Line:
    """Return the line with an ellipsis at its end: more of it was left out."""
    return (
        fit((*line, (" …", "faint")), width)
        if line_width(line) + 2 <= width
        else (*fit(line, width - 2), (" …", "faint"))
    )


def spread(left: Iterable[Span], right: Iterable[Span], width: int) -> Line:
    """Align `left` to the left edge and `right` to the right edge; if both do not fit, `left` is cut."""
    right = tuple(right)
    return (*fit(left, max(0, width - line_width(right))), *right)


def wrap(spans: Iterable[Span], width: int, indent: int = 0) -> list[Line]:
    """Wrap spans at spaces into lines of at most `width` cells; lines after the first begin with `indent` blanks.

    A word longer than a line is broken.
    """
    room = max(1, width - indent)
    start: list[Span] = [(" " * indent, "")] if indent else []
    lines: list[Line] = []
    line: list[Span] = []
    used = 0
    for text, role in spans:
        for position, word in enumerate(text.split(" ")):
            gap = " " if position and used > (indent if lines else 0) else ""
            if used + width_of(gap + word) > width and used > (indent if lines else 0):
                lines.append(compact(line))
                line, used, gap = [*start], indent, ""
            *whole, last = chunks(word, room)
            for chunk in whole:
                lines.append((*line, (gap + chunk, role)))
                line, used, gap = [*start], indent, ""
            if gap or last:
                line.append((gap + last, role))
                used += width_of(gap + last)
    return [*lines, compact(line)]


def compact(line: Iterable[Span]) -> Line:
    """Return the same cells in as few spans as possible, because every span costs time each time that Textual passes it on.

    Blanks show only their background, so they are joined to an adjacent span with the same background.
    """
    made: list[Span] = []
    held, its_role, its_ground, blank = "", "", "", True
    for text, role in line:
        if not text:
            continue
        is_blank = text.isspace()
        ground = its_ground if role == its_role else _ground_of(role)
        if held and ground == its_ground and (role == its_role or blank or is_blank):
            held += text
            if blank:
                its_role, blank = role, is_blank
            continue
        if held:
            made.append((held, its_role))
        held, its_role, its_ground, blank = text, role, ground, is_blank
    if held:
        made.append((held, its_role))
    return tuple(made)


@lru_cache(maxsize=1024)
def _ground_of(role: str) -> str:
    """Return the role of the background of a span, "" for the background of the whole line."""
    return role.partition("@")[2] or role.partition(" on ")[2]


def chunks(text: str, width: int) -> list[str]:
    """Split the text into pieces of at most `width` cells (or of one character if that is wider)."""
    return [text] if width_of(text) <= width else chop_cells(text, width)


def in_columns(entries: Sequence[Line], columns: int, gap: int) -> list[Line]:
    """Lay out entries of one width in columns, each filled from the top to the bottom."""
    rows = -(-len(entries) // columns)
    lines = []
    for row in range(rows):
        first, *others = entries[row::rows]
        lines.append((*first, *(span for entry in others for span in ((" " * gap, ""), *entry))))
    return lines


def sparkline(values: Sequence[float | None], width: int, role: str = "spark") -> Line:
    """Draw the newest `width` values on a log scale of their own range.

    Unknown values are blank, zero is the lowest height, and values that are not finite are marks in the role `error`.
    """
    newest = list(values[-width:]) if width > 0 else []
    if not any(value is not None for value in newest):
        return ((" " * max(0, width), ""),)
    logs = [math.log10(value) for value in newest if value is not None and 0 < value < math.inf]
    low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
    if high - low < _MIN_RANGE:
        # Slightly off the middle, which lies on the border between two heights.
        low = (high + low) / 2 - 0.55 * _MIN_RANGE
        high = low + _MIN_RANGE
    spans: list[Span] = [(" " * (width - len(newest)), "")] if len(newest) < width else []
    if len(logs) == len(newest):
        # The usual case, kept fast because a tree has a sparkline in each row.
        return (*spans, ("".join([_HEIGHTS[min(7, int((log - low) / (high - low) * 8))] for log in logs]), role))
    return compact((*spans, *(_glyph(value, low, high, role) for value in newest)))


def _glyph(value: float | None, low: float, high: float, role: str) -> Span:
    if value is None:
        return " ", role
    if not math.isfinite(value):
        return _NOT_FINITE, "error"
    if value <= 0:
        return _HEIGHTS[0], role
    return _HEIGHTS[min(7, max(0, int((math.log10(value) - low) / (high - low) * 8)))], role


@dataclass(frozen=True)
class DetailRow:
    """A label and its text."""

    label: str
    spans: Line = ()
    line: Callable[[int], Line] | None = None
    """Used instead of `spans`: makes one line for a width, which is not wrapped."""


def text_rows(label: str, words: str | None, role: str = "text") -> list[DetailRow]:
    """Return one row of plain words; empty if `words` is None."""
    return [DetailRow(label, ((words, role),))] if words is not None else []


def detail_lines(rows: Sequence[DetailRow], width: int) -> list[Line]:
    """Wrap rows into lines, with their labels in a column."""
    lines: list[Line] = []
    room = max(10, width - _LABEL_WIDTH)
    for row in rows:
        first, *rest = wrap(row.spans, room) if row.line is None else [fit(row.line(room), room)]
        lines.append(((row.label.ljust(_LABEL_WIDTH), "muted"), *first))
        lines += [((" " * _LABEL_WIDTH, ""), *line) for line in rest]
    return lines
