"""Count the floating-point operations of a forward and its backward from the operations of the forward. Any thread.

Matrix products, convolutions and attention count, by the formulas of `torch.utils.flop_counter` (PyTorch): the product of m × k
elements and k × n elements is 2 m n k operations, and attention counts as if it had no mask. Operations of each element do not
count, such as activations and norms, nor does what a checkpoint computes a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from gradtui.named_tuple import NamedTuple

_ATEN = torch.ops.aten
_PLUS_PRODUCT = (_ATEN.addmm, _ATEN.baddbmm)
"""Operations whose first argument is added to the product of the next two."""
_ATTENTION = tuple(
    getattr(_ATEN, name)
    for name in (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    )
    if hasattr(_ATEN, name)
)
_UNCOUNTED = re.compile(r"(?:^|_)[a-z]*mm(?:_|$)|rnn|conv|attention|matmul|linear$")
"""Names of operations that contain products."""


class Flops(NamedTuple):
    """Floating-point operations of the products in one operation."""

    forward: int
    backward: int


NONE = Flops(0, 0)


class FlopCount:
    """The floating-point operations of one step."""

    def __init__(self) -> None:
        self._by_dtype: dict[str, int] = {}
        self.has_more = False
        """Whether there were operations whose products, or whose backward, are unknown."""

    def add(self, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], result: Any) -> None:
        """Add an operation of a forward, with its backward."""
        records = torch.is_grad_enabled()
        flops = flops_of(function, arguments, result, keywords, records=records)
        if flops is None:
            self.has_more = True
        elif flops.forward:
            # In the forward of a custom `torch.autograd.Function` no gradient is recorded either, and its backward is unknown.
            self.has_more |= not records
            dtype = _arithmetic(function, _factors(function, arguments)[0])
            self._by_dtype[dtype] = self._by_dtype.get(dtype, 0) + sum(flops)

    @property
    def by_dtype(self) -> tuple[tuple[str, int], ...]:
        """The number of operations by the dtype of the factors; "tf32" for single precision that the script lets be rounded."""
        return tuple(sorted(self._by_dtype.items()))


def flops_of(
    function: Any,
    arguments: Sequence[Any],
    result: Any,
    keywords: Mapping[str, Any] | None = None,
    *,
    records: bool,
) -> Flops | None:
    """Return the floating-point operations of the products in an operation and in its backward; None if they are unknown.

    Backward has a product of the same size for each factor that requires a gradient. Attention has two products in forward
    (scores, and their product with the values), and in backward one for each of query, key and value, and one for the scores.

    Args:
        function: the operation.
        arguments: its positional arguments.
        result: what it returned.
        keywords: its other arguments.
        records: whether gradients are enabled.
    """
    packet = getattr(function, "_overloadpacket", None)
    formula = flop_registry.get(_ATTENTION[0] if packet in _ATTENTION else packet)
    if formula is None:
        return None if _has_products(function) else NONE
    try:
        forward = int(formula(*arguments, **(keywords or {}), out_val=result))
    except Exception:  # noqa: BLE001 - a formula that fails for these shapes
        return None
    needs = [isinstance(each, torch.Tensor) and each.requires_grad for each in _factors(function, arguments)]
    if not records:
        return Flops(forward, 0)
    if packet in _ATTENTION:
        query, key, value = needs
        return Flops(forward, forward * (query + key + value + (query or key)) // 2)
    return Flops(forward, forward * sum(needs))


def _factors(function: Any, arguments: Sequence[Any]) -> Sequence[Any]:
    packet = function._overloadpacket  # noqa: SLF001 - as torch's own counter does
    if packet in _ATTENTION:
        return arguments[:3]
    return arguments[1:3] if packet in _PLUS_PRODUCT else arguments[:2]


@lru_cache(maxsize=1_000)
def _has_products(function: Any) -> bool:
    namespace, _, name = str(getattr(function, "_name", function)).partition(".")[0].rpartition("::")
    if namespace not in ("aten", "prims"):
        return namespace not in ("profiler", "c10d", "_c10d_functional", "debugprims")
    return _UNCOUNTED.search(name) is not None


def _arithmetic(function: Any, factor: torch.Tensor) -> str:
    """Return the dtype in which a device multiplies."""
    if factor.dtype is torch.float32 and factor.device.type == "cuda":
        try:
            of_convolutions = "conv" in str(function)
            is_rounded = (
                torch.backends.cudnn.allow_tf32
                if of_convolutions
                else torch.get_float32_matmul_precision() != "highest"
            )
        except RuntimeError:  # settings of the old and of the new kind are mixed
            return "float32"
        return "tf32" if is_rounded else "float32"
    return str(factor.dtype).removeprefix("torch.")
