"""The histogram of a gradient as plain numbers: how many elements have which size, in powers of two.

Powers of two, because what an element's bin is can be read from its exponent without rounding, and because the limits of
float16 and bfloat16 are powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass

LOWEST = -44
"""The first bin begins at 2**LOWEST, 5.7e-14."""
BINS = 56
"""Bin `i` has the elements with 2**(LOWEST + i) <= |g| < 2**(LOWEST + i + 1); the last ends at 4096."""
MAX_WATCHED = 16
"""So many parameters may be watched at a time."""


@dataclass(frozen=True, slots=True)
class GradientHistogram:
    """How the elements of one gradient are spread, as it was applied.

    All counts are of the `seen` elements, which are all that the gradient stores unless `estimated`. What a sparse gradient
    does not store is zero, and counted so. Of complex elements the magnitude counts.
    """

    parameter: int
    """Its place in the tree."""
    counts: tuple[int, ...]
    """`BINS` of them."""
    smaller: int
    """Not zero, and below the first bin."""
    larger: int
    """Finite, and beyond the last bin."""
    zeros: int
    nan: int
    inf: int
    positive: int
    """Above zero, infinity included; the magnitudes of complex elements all are."""
    seen: int
    elements: int
    """How many elements the gradient has, or this process' shard of it."""
    is_shard: bool = False
    """It is the local part of a distributed tensor."""

    @property
    def estimated(self) -> bool:
        """Whether it is that of a sample."""
        return self.seen < self.elements

    @property
    def finite(self) -> int:
        """Elements that are neither zero, nor NaN, nor infinite."""
        return sum(self.counts) + self.smaller + self.larger
