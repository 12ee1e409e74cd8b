"""Combine the gradient statistics of many parameters: of a module, of a model, of the whole run. Pure.

The probe measures parameters in turn. The combined statistics use the newest measurement of each parameter, over the stated
steps, and only the parameters measured so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradtui.protocol.vocabulary import GradientStats
from gradtui.state.run_state import TreeState


@dataclass(frozen=True)
class AggregatedStats:
    """`GradientStats` of all elements of several parameters as if they were one tensor."""

    tensors: int
    """Number of parameters measured so far."""
    of: int
    """Number of parameters that train."""
    first_step: int
    """The step of the oldest measurement in these statistics."""
    last_step: int
    max_abs: float
    mean: float
    std: float
    zero_fraction: float
    not_finite: int
    weight_norm: float
    update_ratio: float | None
    """Of those whose own ratio is known, `ratio_tensors` of them."""
    ratio_tensors: int
    ratio_is_exact: bool


def aggregated_stats(tree: TreeState, parameters: range) -> AggregatedStats | None:
    """Return the statistics of those of these parameters that train; None if none was measured. Linear in their number."""
    return _gathered(tree, parameters).joint()


def joint_figures_of_modules(tree: TreeState) -> list[AggregatedStats | None]:
    """Return the statistics of all modules, each with its subtree, in the order of the tree. Linear in the parameters."""
    found = [
        _gathered(tree, range(module.first_parameter, module.first_parameter + module.own_parameters))
        for module in tree.modules
    ]
    # A module stands behind the one that holds it, so what it holds itself has been added by then.
    for index in range(len(found) - 1, -1, -1):
        holder = tree.modules[index].parent
        if holder >= 0:
            if found[index].tensors:
                found[holder].take(found[index])
            else:
                found[holder].of += found[index].of
    return [each.joint() for each in found]


@dataclass(slots=True)
class _Gathered:
    """Statistics of some parameters in a form that can be added."""

    of: int = 0
    tensors: int = 0
    first_step: float = math.inf
    last_step: int = 0
    max_abs: float = 0.0
    stored: int = 0
    mean: float = 0.0
    spread: float = 0.0
    """The sum of the squares around the mean."""
    elements: int = 0
    zeros: float = 0.0
    not_finite: int = 0
    weight_norm: float = 0.0
    ratio_tensors: int = 0
    moved: float = 0.0
    """L2 of what a step adds to those whose ratio is known, and of these themselves."""
    moved_weight: float = 0.0
    ratio_is_exact: bool = True

    def take(self, other: _Gathered) -> None:
        """Add the statistics of other parameters."""
        stored, apart = self.stored + other.stored, other.mean - self.mean
        # Around the joint mean: squares of the means themselves would lose a small spread.
        # Products, since `**` raises where a square is beyond what a float can be.
        self.spread += other.spread + apart * apart * (self.stored * other.stored / max(1, stored))
        self.mean = (self.mean * self.stored + other.mean * other.stored) / max(1, stored)
        self.stored = stored
        is_nan = math.isnan(self.max_abs) or math.isnan(other.max_abs)
        self.max_abs = math.nan if is_nan else max(self.max_abs, other.max_abs)
        self.of += other.of
        self.tensors += other.tensors
        self.first_step = min(self.first_step, other.first_step)
        self.last_step = max(self.last_step, other.last_step)
        self.elements += other.elements
        self.zeros += other.zeros
        self.not_finite += other.not_finite
        self.weight_norm = math.hypot(self.weight_norm, other.weight_norm)
        self.ratio_tensors += other.ratio_tensors
        self.moved = math.hypot(self.moved, other.moved)
        self.moved_weight = math.hypot(self.moved_weight, other.moved_weight)
        self.ratio_is_exact = self.ratio_is_exact and other.ratio_is_exact

    def joint(self) -> AggregatedStats | None:
        if not self.tensors:
            return None
        return AggregatedStats(
            tensors=self.tensors,
            of=self.of,
            first_step=int(self.first_step),
            last_step=self.last_step,
            max_abs=self.max_abs,
            mean=self.mean,
            std=math.sqrt(self.spread / max(1, self.stored)) if math.isfinite(self.spread) else math.nan,
            zero_fraction=self.zeros / max(1, self.elements),
            not_finite=self.not_finite,
            weight_norm=self.weight_norm,
            update_ratio=self.moved / self.moved_weight if self.moved_weight > 0 else None,
            ratio_tensors=self.ratio_tensors,
            ratio_is_exact=self.ratio_is_exact,
        )


def _gathered(tree: TreeState, parameters: range) -> _Gathered:
    training = [index for index in parameters if tree.trainable[index] != "0"]
    whole = _Gathered()
    for look in map(tree.figures.get, training):
        if look is not None:
            one = _one(tree, *look)
            if whole.tensors:
                whole.take(one)
            else:
                whole = one
    whole.of = len(training)
    return whole


def _one(tree: TreeState, step: int, seen: GradientStats) -> _Gathered:
    stored, elements = _count(tree, seen, seen.stored), _count(tree, seen, seen.elements)
    ratio = seen.update_ratio
    return _Gathered(
        tensors=1,
        first_step=step,
        last_step=step,
        max_abs=seen.max_abs,
        stored=stored,
        mean=seen.mean,
        spread=seen.std * seen.std * stored,
        elements=elements,
        zeros=seen.zero_fraction * elements,
        not_finite=seen.not_finite,
        weight_norm=seen.weight_norm,
        ratio_tensors=int(ratio is not None),
        moved=ratio * seen.weight_norm if ratio is not None else 0.0,
        moved_weight=seen.weight_norm if ratio is not None else 0.0,
        ratio_is_exact=seen.ratio_is_exact or ratio is None,
    )


def _count(tree: TreeState, figures: GradientStats, known: int | None) -> int:
    return known if known is not None else tree.parameters[figures.parameter].count
