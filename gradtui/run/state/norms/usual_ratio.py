"""How far a step usually moves the weights, and which update ratios are far from that. Pure."""

from __future__ import annotations

from gradtui.run.state.tree_state import TreeState

USUAL_RATIO = 1e-3
"""The usual norm of a step's update divided by that of the weights: a rule of thumb of Andrej Karpathy's notes for CS231n
(https://cs231n.github.io/neural-networks-3/, "Ratio of weights:updates")."""
_FAR_ABOVE, _FAR_BELOW = 10.0, 1e-3
"""Ratios above and below these multiples of the usual one are far from it. Small ratios are common: learning rates decay."""
_FAR_ABOVE_OF_VECTORS = 100.0
"""The same of biases and of the weights of norms: a bias begins at zero, so its norm is small for long."""


def is_far_from_usual(tree: TreeState, where: range, ratio: float | None) -> bool:
    """Return whether the update ratio of the parameters `where` is far from the usual one.

    One of exactly zero is not: such a step moves nothing.
    """
    if ratio is None or ratio == 0:
        return False
    times = ratio / USUAL_RATIO
    if _FAR_BELOW <= times <= _FAR_ABOVE:
        return False
    is_within = _FAR_ABOVE < times <= _FAR_ABOVE_OF_VECTORS
    return not is_within or any(len(tree.parameters[index].shape) > 1 for index in where)
