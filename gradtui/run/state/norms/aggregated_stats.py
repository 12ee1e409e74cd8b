"""Combine the gradient statistics of many parameters: of a module, of a model, of the whole run. Pure.

The probe measures parameters in turn. The combined statistics use the newest measurement of each parameter, over the stated
steps, and only the parameters measured so far.
"""

from __future__ import annotations

import math

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.state.tree_state import TreeState


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
    training = [index for index in parameters if tree.trainable[index] != "0"]
    measured = [tree.gradient_figures[index] for index in training if index in tree.gradient_figures]
    if not measured:
        return None
    steps, stats = [step for step, _ in measured], [each for _, each in measured]
    stored = [_count(tree, each, each.stored) for each in stats]
    elements = [_count(tree, each, each.elements) for each in stats]
    mean = sum(each.mean * count for each, count in zip(stats, stored)) / max(1, sum(stored))
    # Around the joint mean: squares of the means themselves would lose a small spread.
    # Products, since `**` raises where a square is beyond what a float can be.
    spread = sum(
        (each.std * each.std + (each.mean - mean) * (each.mean - mean)) * count for each, count in zip(stats, stored)
    )
    with_ratio = [(each.update_ratio, each.weight_norm) for each in stats if each.update_ratio is not None]
    moved_weight = math.hypot(*(weight for _, weight in with_ratio))
    is_nan = any(math.isnan(each.max_abs) for each in stats)
    return AggregatedStats(
        tensors=len(stats),
        of=len(training),
        first_step=min(steps),
        last_step=max(steps),
        max_abs=math.nan if is_nan else max(each.max_abs for each in stats),
        mean=mean,
        std=math.sqrt(spread / max(1, sum(stored))) if math.isfinite(spread) else math.nan,
        zero_fraction=sum(each.zero_fraction * count for each, count in zip(stats, elements)) / max(1, sum(elements)),
        not_finite=sum(each.not_finite for each in stats),
        weight_norm=math.hypot(*(each.weight_norm for each in stats)),
        update_ratio=math.hypot(*(ratio * weight for ratio, weight in with_ratio)) / moved_weight
        if moved_weight > 0
        else None,
        ratio_tensors=len(with_ratio),
        ratio_is_exact=all(each.ratio_is_exact or each.update_ratio is None for each in stats),
    )


def _count(tree: TreeState, figures: GradientStats, known: int | None) -> int:
    return known if known is not None else tree.parameters[figures.parameter].count
