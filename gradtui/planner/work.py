"""Count the floating-point operations of a step, to say whether another step is faster or slower. Any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry


def floating_point_operations(function: Any, arguments: Sequence[Any], result: Any) -> int:
    """Return the floating-point operations of a matrix product, convolution or attention; 0 for any other operation.

    The formulas are those of `torch.utils.flop_counter`.
    """
    formula = flop_registry.get(function._overloadpacket)  # noqa: SLF001 - as torch's own counter does
    if formula is None:
        return 0
    try:
        return int(formula(*arguments, out_val=result))
    except Exception:  # noqa: BLE001 - a formula that takes keyword arguments, or fails for these shapes
        return 0


def gradients_of(arguments: Sequence[Any]) -> int:
    """Return how many products of the same size backward computes: one for each factor that requires a gradient."""
    factors = [each for each in arguments if isinstance(each, torch.Tensor) and each.dim() > 1]
    return sum(each.requires_grad for each in factors)
