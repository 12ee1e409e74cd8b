"""Rows of a parameter: sorted ranges that do not touch, and the text in which a person names them. Pure.

Rows are the slices of a parameter along its first dimension, numbered from 0: of an embedding the tokens, of a linear layer the
output features, of a bias its elements. A text has Python's slices, separated by commas: `0:32000`, `5`, `:32000`, `32000:`,
`-4:`, `0:10,20:30`. A number below zero counts from the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Ranges = tuple[tuple[int, int], ...]
"""(first row, row after the last), in order."""

EXAMPLES = "0:32000, 5, 32000: or 0:10,20:30"
_NUMBER = r"-?\d{1,18}"
_PART = re.compile(rf"(?P<only>{_NUMBER})|(?P<begin>{_NUMBER})?:(?P<end>{_NUMBER})?")


class BadRows(ValueError):  # noqa: N818 - it is an answer, not an error of gradtui
    """A text that names no rows. The message is one line."""


def objection_to_rows(text: str) -> str | None:
    """Return why a text names rows of no parameter, however many it has; None if it may."""
    try:
        _parts(text)
    except BadRows as bad:
        return str(bad)
    return None


def ranges_of(text: str, rows: int) -> Ranges:
    """Return the rows that a text names in a parameter of so many rows. Raises `BadRows`."""
    found = []
    for part, begin, end in _parts(text):
        if not (-rows <= (begin or 0) < rows and -rows <= (end or 0) <= rows):
            raise BadRows(f"{part} goes beyond the rows of the parameter, which are 0 to {rows - 1:,}")
        first = 0 if begin is None else begin + rows * (begin < 0)
        last = rows if end is None else end + rows * (end < 0)
        if first >= last:
            raise BadRows(f"{part} has no rows: a range ends after its beginning")
        found.append((first, last))
    return joined(found)


def _parts(text: str) -> list[tuple[str, int | None, int | None]]:
    """Return each part of a text with its beginning and its end, None where it is open. Raises `BadRows`."""
    parts: list[tuple[str, int | None, int | None]] = []
    for part in text.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
            raise BadRows(f"{shown!r} names no rows: write {EXAMPLES}")
        if match["only"] is not None:
            only = int(match["only"])
            # The row after -1 is the end.
            parts.append((part, only, None if only == -1 else only + 1))
        else:
            begin, end = (None if number is None else int(number) for number in match.group("begin", "end"))
            parts.append((part, begin, end))
    return parts


_MAX_SHOWN = 60


def text_of(ranges: Ranges, most: int = 1_000) -> str:
    """Return rows as `ranges_of` reads them; of more than `most` ranges the first ones and an ellipsis."""
    shown = [str(begin) if end == begin + 1 else f"{begin}:{end}" for begin, end in ranges[:most]]
    return ",".join([*shown, "…"] if len(ranges) > most else shown)


def count(ranges: Ranges) -> int:
    """Return the number of rows."""
    return sum(end - begin for begin, end in ranges)


def joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return ranges in order, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return tuple(found)


def others(ranges: Ranges, rows: int) -> Ranges:
    """Return the rows of a parameter of so many rows that are in none of these ranges."""
    edges = [0, *(edge for each in ranges for edge in each), rows]
    return tuple((begin, end) for begin, end in zip(edges[::2], edges[1::2]) if begin < end)


def without(ranges: Ranges, removed: Ranges, rows: int) -> Ranges:
    """Return the rows of `ranges` that are not in `removed`, of a parameter of so many rows."""
    return others(joined([*others(ranges, rows), *removed]), rows)
