"""Symbols for rows with a pending freeze or unfreeze; fast even if a whole large model is pending. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

FREEZE, UNFREEZE, MIXED = "▽", "△", "◇"


class PendingMarks:
    """Symbols for any range of parameters, from the parameters with a pending freeze (False) or unfreeze (True)."""

    def __init__(self, wishes: Mapping[int, bool]) -> None:
        self._freezing = sorted(index for index, wish in wishes.items() if not wish)
        self._unfreezing = sorted(index for index, wish in wishes.items() if wish)

    def mark(self, first: int, last: int) -> str:
        """Return the symbol of the parameters `first:last`, empty if none of them is pending."""
        freezing, unfreezing = _any_in(self._freezing, first, last), _any_in(self._unfreezing, first, last)
        if freezing and unfreezing:
            return MIXED
        return FREEZE if freezing else UNFREEZE if unfreezing else ""


NOTHING_PENDING = PendingMarks({})


def _any_in(indices: list[int], first: int, last: int) -> bool:
    at = bisect_left(indices, first)
    return at < len(indices) and indices[at] < last
