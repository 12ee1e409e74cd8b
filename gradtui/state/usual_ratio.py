"""How far a step usually moves the weights, and which update ratios are far from that. Pure."""

from __future__ import annotations

USUAL_RATIO = 1e-3
"""The usual norm of a step's update divided by that of the weights: a rule of thumb of Andrej Karpathy's notes for CS231n
(https://cs231n.github.io/neural-networks-3/, "Ratio of weights:updates")."""
_FAR_ABOVE, _FAR_BELOW = 10.0, 1e-3
"""Ratios above and below these multiples of the usual one are far from it. Small ratios are common: learning rates decay."""


def is_far_from_usual(ratio: float | None) -> bool:
    """Return whether an update ratio is far from the usual one. One of exactly zero is not: such a step moves nothing."""
    return ratio is not None and ratio != 0 and not _FAR_BELOW * USUAL_RATIO <= ratio <= _FAR_ABOVE * USUAL_RATIO
