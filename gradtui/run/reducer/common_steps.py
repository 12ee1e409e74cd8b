"""Choose which measurements of a rank to keep until the other ranks have made theirs. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def least_common(steps: Sequence[int]) -> int:
    """Return the index of the step that other ranks measure least likely, and of several of these the earliest.

    Each rank measures at the multiples of a power of two, the others at those of a larger or smaller one.
    """
    return min(range(len(steps)), key=lambda index: (steps[index] & -steps[index], steps[index]))
