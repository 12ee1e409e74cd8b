"""By which number the script has multiplied or divided a loss, read from the last operations of its graph. Training thread."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradtui.probe.torch_private.private_names import saved_data
from gradtui.probe.torch_private.unshown_tensors import saved

FACTORS = ("DivBackward0", "MulBackward0")
PASSING = ("ToCopyBackward0", "NegBackward0", "ViewBackward0", "SqueezeBackward0", "CloneBackward0")
"""Operations that leave the size of a loss as it is."""
_LIKELIHOODS = ("NllLossBackward0", "NllLoss2DBackward0")
IS_MEAN = 0.01
"""Relative difference up to which a divisor counts as the number of terms, and the quotient as their mean."""
SUM = 2
"""`reduction="sum"` of torch's loss functions."""
_NODES = 4
"""Maximum number of operations that `factor_of` reads. A step that accumulates gradients calls it at each backward but one."""


class LossFactor(NamedTuple):
    """By which number the script has multiplied a loss."""

    value: float
    is_share: bool = False
    """The script has divided a sum of likelihoods by the targets of more batches than this one, as transformers does."""


def factor_of(outputs: Any, *, is_scaled: bool = False) -> LossFactor | None:
    """Return the number by which the script has multiplied the tensor that backward is called on; None if it has not.

    A division counts as a multiplication by the inverse, and one by 1 does not count: `Accelerator.backward` makes it. autograd
    keeps the number in the operation: it is read as it was saved, without running the script's hooks. With `is_scaled`, the
    last operation is that of a loss scaler.
    """
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    node = getattr(first, "grad_fn", None)
    if is_scaled and node is not None:
        node = _before(node)
    factor = 1.0
    for _ in range(_NODES):
        # The node of a custom `autograd.Function` is its `ctx`, where the script may have set an attribute `name`.
        name = type(node).__name__
        if name in FACTORS:
            found = _factor(node, name)
            if found is None or factor != 1:
                break
            factor = found
        elif name not in PASSING:
            break
        node = _before(node)
    terms = summed_terms(node)
    if terms is not None and factor * terms < 1 - IS_MEAN:
        return LossFactor(factor * terms, is_share=True)
    return LossFactor(factor) if factor != 1 else None


def summed_terms(node: Any) -> float | None:
    """Return how many terms a loss function has summed, by its node; None if that is unknown.

    These are the targets of a likelihood without those that it leaves out, or with these on a device, which would have to be
    waited for.
    """
    if type(node).__name__ not in _LIKELIHOODS or getattr(node, "_saved_reduction", None) != SUM:
        return None
    weight = saved_data(saved(node, "_raw_saved_total_weight"))
    if weight is not None and weight.is_cpu:
        return float(weight) or None
    targets = saved_data(saved(node, "_raw_saved_target"))
    return targets.numel() if targets is not None else None


def _factor(node: Any, name: str) -> float | None:
    other = saved(node, "_raw_saved_other")
    number = saved_data(other) if other is not None else None
    if number is None or number.dim() or not number.is_cpu or number.requires_grad:
        return None
    value = float(number)
    return (1 / value if value else None) if name == FACTORS[0] else value


def _before(node: Any) -> Any:
    return next((each for each, _ in node.next_functions if each is not None), None)
