"""The histogram of a gradient as plain numbers: the count of elements per power of two of their magnitude.

The bins are powers of two because the exponent of an element gives its bin without rounding, and because the limits of
float16 and bfloat16 are powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass

LOWEST = -44
"""The first bin begins at 2**LOWEST, 5.7e-14."""
BINS = 56
"""Bin `i` counts the elements with 2**(LOWEST + i) <= |g| < 2**(LOWEST + i + 1); the last ends at 4096."""
MAX_WATCHED = 16
"""Maximum number of parameters watched at a time."""


@dataclass(frozen=True, slots=True)
class GradientHistogram:
    """The histogram of the magnitudes of one gradient as it was applied.

    All counts are of the `seen` elements: all that the gradient stores unless `estimated`. Elements that a sparse gradient
    does not store count as zeros. For complex elements the magnitude counts.
    """

    parameter: int
    """Index of the parameter."""
    counts: tuple[int, ...]
    """Counts of the `BINS` bins."""
    smaller: int
    """Non-zero elements below the first bin."""
    larger: int
    """Finite elements beyond the last bin."""
    zeros: int
    nan: int
    inf: int
    positive: int
    """Elements above zero, infinity included; the magnitudes of complex elements all count."""
    seen: int
    elements: int
    """Number of elements of the gradient, or of this process's shard of it."""
    is_shard: bool = False
    """The gradient is the local part of a distributed tensor."""

    @property
    def estimated(self) -> bool:
        """Whether the counts are those of a sample of the elements."""
        return self.seen < self.elements

    @property
    def finite(self) -> int:
        """Number of elements that are neither zero, nor NaN, nor infinite."""
        return sum(self.counts) + self.smaller + self.larger
