"""Selects the points of a long curve that are enough to draw it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import isfinite


def standing_out(values: Sequence[float | None], pieces: int) -> list[int]:
    """Return the indexes, in order, of the points to draw if the curve is divided into at most `pieces` pieces.

    Of each piece these are the lowest and the highest finite value, the lowest positive value, and the first None, NaN, Inf
    and -Inf. So every gap and mark stays.
    """
    count = len(values)
    size = max(1, -(-count // pieces))
    kept: list[int] = []
    for start in range(0, count, size):
        piece = values[start : start + size]
        kept += [start + index for index in (_plain(piece) or _any(piece))]
    return kept


def _plain(piece: Sequence[float | None]) -> list[int] | None:
    """Return the extremes of a piece if every value is a positive number (checked at the speed of C), else None."""
    try:
        low, high, whole = min(piece), max(piece), sum(piece)  # type: ignore[type-var,arg-type]
    except TypeError:
        return None
    if not low > 0 or not isfinite(whole):  # type: ignore[operator]
        return None
    return sorted({piece.index(low), piece.index(high)})


def _any(piece: Sequence[float | None]) -> list[int]:
    finite = [value is not None and isfinite(value) for value in piece]
    known = list(compress(enumerate(piece), finite))
    positive = [(index, value) for index, value in known if value is not None and value > 0]
    kept = {next((index for index, value in enumerate(piece) if str(value) == kind), -1) for kind in _KINDS}
    for each in (known, positive):
        kept |= {chosen(each, key=lambda point: point[1] or 0.0)[0] for chosen in (min, max) if each}
    return sorted(kept - {-1})


_KINDS = ("None", "nan", "inf", "-inf")
