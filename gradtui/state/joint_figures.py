"""What the gradients of many parameters were like together: of a module, of a model, of the whole run. Pure.

Each parameter is looked at in its turn, so the figures are of the newest look at each, over the steps that are told with them,
and of as many tensors as have been looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradtui.protocol.vocabulary import GradientFigures
from gradtui.state.run_state import TreeState


@dataclass(frozen=True)
class JointFigures:
    """As `GradientFigures`, of all elements of several parameters as if they were one tensor."""

    tensors: int
    """How many of them have been looked at."""
    of: int
    """How many there are that train."""
    first_step: int
    """The oldest look that is in these figures."""
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


def joint_figures(tree: TreeState, parameters: range) -> JointFigures | None:
    """Of these parameters, as far as they train; None if nobody has looked at any. Linear in their number."""
    training = [place for place in parameters if tree.trainable[place] != "0"]
    looks = [tree.figures[place] for place in training if place in tree.figures]
    if not looks:
        return None
    seen = [figures for _, figures in looks]
    elements = [_count(tree, each, each.elements) for each in seen]
    stored = [_count(tree, each, each.stored) for each in seen]
    mean = sum(each.mean * n for each, n in zip(seen, stored)) / max(1, sum(stored))
    # Around the joint mean: squares of the means themselves would lose a small spread.
    # Products, since `**` raises where a square is beyond what a float can be.
    spread = sum((each.std * each.std + (each.mean - mean) * (each.mean - mean)) * n for each, n in zip(seen, stored))
    moved = [(each.update_ratio, each.weight_norm) for each in seen if each.update_ratio is not None]
    weight = math.hypot(*(norm for _, norm in moved))
    steps = [step for step, _ in looks]
    return JointFigures(
        tensors=len(looks),
        of=len(training),
        first_step=min(steps),
        last_step=max(steps),
        max_abs=math.nan if any(math.isnan(each.max_abs) for each in seen) else max(each.max_abs for each in seen),
        mean=mean,
        std=math.sqrt(spread / max(1, sum(stored))) if math.isfinite(spread) else math.nan,
        zero_fraction=sum(each.zero_fraction * n for each, n in zip(seen, elements)) / max(1, sum(elements)),
        not_finite=sum(each.not_finite for each in seen),
        weight_norm=math.hypot(*(each.weight_norm for each in seen)),
        update_ratio=math.hypot(*(ratio * norm for ratio, norm in moved)) / weight if weight > 0 else None,
        ratio_tensors=len(moved),
        ratio_is_exact=all(each.ratio_is_exact for each in seen if each.update_ratio is not None),
    )


def _count(tree: TreeState, figures: GradientFigures, known: int | None) -> int:
    return known if known is not None else tree.parameters[figures.parameter].count
