"""How far steps move the weights of each param group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState

_MAX_WEIGHTS = 5
"""The number of weights of a group that its curve is made of, the largest ones."""


def weights(tree: TreeState, parameters: Iterable[int]) -> list[int]:
    """Return those of these parameters that are weights and train, and of which an update ratio was measured.

    Weights have two dimensions or more: a bias, or the scale of a norm, may be near zero for long.
    """
    trained, known = ParameterState.TRAINED.value, tree.parameters
    return [
        index
        for index in parameters
        if index < len(known)
        and len(known[index].shape) > 1
        and tree.states[index : index + 1] == trained
        and len(tree.ratios.of(index))
    ]


def ratio_curve(tree: TreeState, of: Sequence[int]) -> tuple[list[int], list[float]]:
    """Return steps, and the median of the update ratios that were measured in each of them, of the largest of these weights."""
    largest = sorted(of, key=lambda index: -tree.parameters[index].count)[:_MAX_WEIGHTS]
    measured: dict[int, list[float]] = {}
    for index in largest:
        curve = tree.ratios.of(index)
        for step, ratio in zip(curve.steps, curve.values):
            measured.setdefault(step, []).append(ratio)
    steps = sorted(measured)
    return steps, [median(measured[step]) for step in steps]


def began_with_values(tree: TreeState, weight: int) -> bool:
    """Return whether a weight is known to have had other values than 0 at first: the first step has a ratio only then."""
    return tree.ratios.of(weight).steps[:1] == [1]


def since_its_rate_rose(state: RunState, group: tuple[int, int], weight: int, first: int) -> list[float]:
    """Return the update ratios of a weight in the steps from `first` on, since the learning rate of its group rose last."""
    curve, first = state.tree.ratios.of(weight), max(first, state.rates_rose.get(group, 0))
    return [ratio for step, ratio in zip(curve.steps, curve.values) if step >= first]
