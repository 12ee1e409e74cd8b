"""Joint norms over ranges of parameters, fast enough to query for every visible row of a very large model. Pure.

They come from blocks of adjacent parameters, which are joined once per row of norms, and only if a range contains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, inf

from gradtui.run.state.series import joint_norm

_BLOCK = 256


class RangeNorms:
    """Joint norms over ranges of one row of per-parameter norms."""

    def __init__(self, norms: Sequence[float | None]) -> None:
        self._norms = norms
        self._ranges: dict[range, float | None] = {}
        self._blocks: dict[int, float | None] = {}

    def norm(self, where: range) -> float | None:
        """Return the L2 norm over a range of parameters, None if none of them has one."""
        if where not in self._ranges:
            self._ranges[where] = self._join(where.start, where.stop)
        return self._ranges[where]

    def _join(self, start: int, stop: int) -> float | None:
        first, last = -(-start // _BLOCK), stop // _BLOCK
        if first >= last:
            return joint_norm(self._norms[start:stop])
        edges = (*self._norms[start : first * _BLOCK], *self._norms[last * _BLOCK : stop])
        return joint_norm((*edges, *map(self._block, range(first, last))))

    def _block(self, number: int) -> float | None:
        if number not in self._blocks:
            norms = self._norms[number * _BLOCK : (number + 1) * _BLOCK]
            try:
                # As `joint_norm` does, without its call.
                joined = hypot(*norms)  # type: ignore[arg-type]
            except TypeError:
                joined = inf
            self._blocks[number] = joined if joined < inf else joint_norm(norms)
        return self._blocks[number]
