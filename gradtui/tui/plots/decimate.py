"""Which points of a long curve are enough to draw it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import isfinite


def standing_out(values: Sequence[float | None], pieces: int) -> list[int]:
    """Places, in order, of the points that have to be drawn where so many pieces of the curve fit beside each other.

    Of each piece these are the lowest and the highest; where something in it is unknown or not finite, or not positive,
    also the first of each such kind, so that every gap and mark stays, and the lowest that is positive.
    """
    count = len(values)
    size = max(1, -(-count // pieces))
    kept: list[int] = []
    for start in range(0, count, size):
        piece = values[start : start + size]
        kept += [start + place for place in (_plain(piece) or _any(piece))]
    return kept


def _plain(piece: Sequence[float | None]) -> list[int] | None:
    """Where every value is a positive number, found at the speed of C; else None."""
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
    positive = [(place, value) for place, value in known if value is not None and value > 0]
    kept = {next((place for place, value in enumerate(piece) if str(value) == kind), -1) for kind in _KINDS}
    for each in (known, positive):
        kept |= {chosen(each, key=lambda point: point[1] or 0.0)[0] for chosen in (min, max) if each}
    return sorted(kept - {-1})


_KINDS = ("None", "nan", "inf", "-inf")
