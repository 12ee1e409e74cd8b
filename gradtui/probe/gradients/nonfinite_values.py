"""Say what an operation made NaN or Inf of, from the tensors that autograd saves for it. Runs on the training thread.

Each function reads the saved tensors of one node on the CPU, runs no hook, and changes nothing. It returns where the result of
the operation is not finite, so that the search can follow these elements towards the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.probe.torch_private.private_names import GraphNode, saved_data
from gradtui.probe.torch_private.unshown_tensors import saved as shown_of
from gradtui.protocol.nonfinite import NonFiniteCause as Cause

_MOST = 16_777_216
"""Elements of a tensor that is read. A larger one would take a noticeable part of a second."""
_ADD_UP = ("Add", "Baddbmm")
"""Operations that add a mask of scores."""

ONLY_OVERFLOW = frozenset(
    (
        "Add", "Addmm", "Addbmm", "Alias", "Baddbmm", "Bmm", "Cat", "Clone", "Convolution", "Cumsum", "Dot", "Embedding",
        "Expand", "Gather", "Index", "Mean", "Mm", "MseLoss", "Mul", "Mv", "Neg", "Permute", "Pow", "Relu", "Repeat", "Rsub",
        "Select", "Slice", "SmoothL1Loss", "Stack", "Sub", "Sum", "T", "ToCopy", "Transpose", "UnsafeView", "Unsqueeze",
        "Squeeze", "View", "ReshapeAlias",
    )
)  # fmt: skip
"""Operations that make NaN or Inf of finite numbers only where these become too large for the dtype."""


class Made(NamedTuple):
    """What an operation made NaN or Inf of."""

    cause: Cause
    at: torch.Tensor | None
    """A mask of the elements of its result; None if only some are known to be so."""
    dtype: torch.dtype | None = None
    """In which it computed."""
    is_sure: bool = True
    """False if the operation may have been given such values: only its result is known."""


def kind_of_node(node: GraphNode) -> str:
    """Return the name of the operation of a node, such as `Sqrt`."""
    name: str = node.name()
    return name.partition("Backward")[0]


def is_unreadable(node: GraphNode) -> bool:
    """Return whether the node stands for code of others: a function of the script, a compiled region."""
    name: str = node.name()
    # Torch numbers its own.
    return not name[-1:].isdigit()


def made_of(node: GraphNode) -> Made | None:
    """Return what the operation made NaN or Inf of in forward; None if it did not, or if that is unknown."""
    look = _FORWARD.get(kind_of_node(node))
    return _looked(look, node)


def slope_of(node: GraphNode) -> Made | None:
    """Return at which of its values the derivative of the operation is not finite; None as above."""
    look = _BACKWARD.get(kind_of_node(node))
    return _looked(look, node)


def saved(node: GraphNode, name: str) -> torch.Tensor | None:
    """Return a tensor that autograd has saved; None if it is not there, on a device, hooked, or too large to be read."""
    shown = shown_of(node, f"_raw_saved_{name}")
    data = saved_data(shown) if shown is not None else None
    if data is None or data.device.type != "cpu" or data.numel() > _MOST or data.layout is not torch.strided:
        return None
    return data.detach()


def as_dim(number: int) -> int:
    """Return a dimension as the script gave it. Nodes hold it as an unsigned number."""
    return number - 2**64 if number >= 2**63 else number


def _looked(look: Callable[[GraphNode], Made | None] | None, node: GraphNode) -> Made | None:
    if look is None:
        return None
    try:
        with torch.no_grad():
            return look(node)
    except (RuntimeError, TypeError, AttributeError, IndexError, NotImplementedError):
        # Another version of torch has other names, or a dtype has no such comparison.
        return None


def _first(tensor: torch.Tensor | None, *cases: tuple[Cause, torch.Tensor | None]) -> Made | None:
    """Return the first case of which there is an element."""
    for cause, at in cases:
        if at is not None and bool(at.any()):
            return Made(cause, at, tensor.dtype if tensor is not None else None)
    return None


def _of_input(*cases: tuple[Cause, Callable[[torch.Tensor], torch.Tensor]]) -> Callable[[GraphNode], Made | None]:
    def look(node: GraphNode) -> Made | None:
        x = saved(node, "self")
        return _first(x, *((cause, test(x)) for cause, test in cases)) if x is not None else None

    return look


def _of_result(*cases: tuple[Cause, Callable[[torch.Tensor], torch.Tensor]], is_sure: bool) -> Any:
    def look(node: GraphNode) -> Made | None:
        result = saved(node, "result")
        made = _first(result, *((cause, test(result)) for cause, test in cases)) if result is not None else None
        return made._replace(is_sure=is_sure) if made is not None else None

    return look


def _divided(node: GraphNode) -> Made | None:
    x, by = saved(node, "self"), saved(node, "other")
    if by is None:
        return None
    zero = by == 0
    if x is None:
        return _first(by, (Cause.BY_ZERO, zero))
    return _first(by, (Cause.ZERO_BY_ZERO, zero & (x == 0)), (Cause.BY_ZERO, zero))


def _power(node: GraphNode) -> Made | None:
    x, exponent = _operand(node, "self"), _operand(node, "exponent")
    if x is None or exponent is None or not isinstance(x, torch.Tensor | int | float):
        return None
    base = x if isinstance(x, torch.Tensor) else torch.tensor(float(x), device="cpu")
    to = exponent if isinstance(exponent, torch.Tensor) else torch.tensor(float(exponent), device="cpu")
    given = base.isfinite() & to.isfinite()
    # The number of a script takes the dtype of the tensor.
    result = base.pow(float(to)) if not to.dim() else base.pow(to)
    return _first(
        base if base.dim() else to,
        (Cause.BY_ZERO, (base == 0) & (to < 0)),
        (Cause.FRACTIONAL_POWER, given & result.isnan()),
        (Cause.OVERFLOW, given & result.isinf()),
    )


def _operand(node: GraphNode, name: str) -> Any:
    return saved(node, name) if hasattr(node, f"_raw_saved_{name}") else getattr(node, f"_saved_{name}", None)


def _product(node: GraphNode) -> Made | None:
    x, y = saved(node, "self"), saved(node, "other")
    one = x if x is not None else y
    if one is None:
        return None
    if x is None or y is None:
        # The other factor is not known.
        return _first(one, (Cause.TIMES_INF, one.isinf()))
    zero = ((x == 0) & y.isinf()) | ((y == 0) & x.isinf())
    return _first(one, (Cause.ZERO_TIMES_INF, zero), (Cause.OVERFLOW, x.isfinite() & y.isfinite() & (x * y).isinf()))


def _matrix_product(node: GraphNode) -> Made | None:
    x, y = saved(node, "mat1" if hasattr(node, "_raw_saved_mat1") else "self"), saved(node, "mat2")
    if x is None or y is None:
        return None
    most = torch.finfo(x.dtype).max
    # Sums of so many products of numbers so large.
    bound = x.shape[-1] * float(x.abs().max()) * float(y.abs().max())
    if not math.isfinite(bound) or bound <= most:
        return None
    return _first(x, (Cause.OVERFLOW, (x.double() @ y.double()).abs() > most))


def _softmax(node: GraphNode) -> Made | None:
    result = saved(node, "result")
    if result is None or not result.dim():
        return None
    dim = as_dim(node._saved_dim)  # noqa: SLF001 - how nodes name what they save
    bad = result.isnan().all(dim, keepdim=True)
    before = node.next_functions[0][0]
    kind = kind_of_node(before) if before is not None else ""
    if kind == "MaskedFill":
        mask = saved(before, "mask")
        hidden = mask.expand_as(result).all(dim, keepdim=True) if mask is not None else None
        return _first(result, (Cause.MASKED_ROW, (bad & hidden).expand_as(result) if hidden is not None else None))
    # The mask that was added is not known. In other rows, it has hidden single elements.
    is_masked = kind in _ADD_UP and bool((result == (0 if kind_of_node(node) == "Softmax" else -math.inf)).any())
    return _first(result, (Cause.MASKED_ROW, bad.expand_as(result) if is_masked else None))


def _attention(node: GraphNode) -> Made | None:
    mask = saved(node, "attn_mask")
    if mask is None:
        return None
    hidden = ~mask if mask.dtype == torch.bool else mask == -math.inf
    return Made(Cause.MASKED_ROW, None, mask.dtype) if bool(hidden.all(-1).any()) else None


def _mean(node: GraphNode) -> Made | None:
    sizes = node._saved_self_sym_sizes  # noqa: SLF001
    over = [sizes[as_dim(each)] for each in getattr(node, "_saved_dim", None) or range(len(sizes))]
    return Made(Cause.EMPTY_MEAN, None) if 0 in over else None


def _spread(node: GraphNode) -> Made | None:
    x, correction, dims = saved(node, "self"), node._saved_correction, node._saved_dim  # noqa: SLF001
    if x is None:
        return None
    count = math.prod(x.shape[as_dim(each)] for each in dims) if dims else x.numel()
    return Made(Cause.SPREAD_OF_ONE, None) if count <= (1 if correction is None else correction) else None


def _likelihood(node: GraphNode) -> Made | None:
    weight = saved(node, "total_weight")
    is_mean = node._saved_reduction == 1  # noqa: SLF001
    return _first(weight, (Cause.EMPTY_LOSS, weight == 0)) if is_mean and weight is not None else None


def _criterion(node: GraphNode) -> Made | None:
    x = saved(node, "self")
    is_empty = x is not None and not x.numel() and node._saved_reduction == 1  # noqa: SLF001
    return Made(Cause.EMPTY_LOSS, None) if is_empty else None


def _power_slope(node: GraphNode) -> Made | None:
    x, exponent = _operand(node, "self"), _operand(node, "exponent")
    if not isinstance(x, torch.Tensor) or not isinstance(exponent, int | float):
        return None
    return _first(x, (Cause.POWER_SLOPE, x == 0)) if exponent < 1 else None


_LOG = _of_input((Cause.LOG_OF_NEGATIVE, lambda x: x < 0), (Cause.LOG_OF_ZERO, lambda x: x == 0))
_BEYOND_ONE = _of_input((Cause.BEYOND_ONE, lambda x: x.abs() > 1))
_EXP = _of_result((Cause.EXP_OVERFLOW, torch.isinf), is_sure=True)
_EXP_OF_INPUT = _of_input((Cause.EXP_OVERFLOW, lambda x: x.isfinite() & x.cosh().isinf()))

_FORWARD: dict[str, Callable[[GraphNode], Made | None]] = {
    **dict.fromkeys(("Log", "Log2", "Log10"), _LOG),
    "Log1P": _of_input((Cause.LOG_OF_NEGATIVE, lambda x: x < -1), (Cause.LOG_OF_ZERO, lambda x: x == -1)),
    "Logit": _of_input(
        (Cause.LOG_OF_NEGATIVE, lambda x: (x < 0) | (x > 1)), (Cause.LOG_OF_ZERO, lambda x: (x == 0) | (x == 1))
    ),
    **dict.fromkeys(("Acos", "Asin"), _BEYOND_ONE),
    "Atanh": _of_input((Cause.BEYOND_ONE, lambda x: x.abs() >= 1)),
    **dict.fromkeys(("Exp", "Expm1", "Exp2"), _EXP),
    **dict.fromkeys(("Cosh", "Sinh"), _EXP_OF_INPUT),
    "Sqrt": _of_result((Cause.SQRT_OF_NEGATIVE, torch.isnan), is_sure=False),
    "Rsqrt": _of_result(
        (Cause.SQRT_OF_NEGATIVE, torch.isnan), (Cause.BY_ZERO, torch.isinf), is_sure=False
    ),
    "Reciprocal": _of_result((Cause.BY_ZERO, torch.isinf), is_sure=False),
    "Div": _divided,
    "Pow": _power,
    "Mul": _product,
    **dict.fromkeys(("Mm", "Addmm", "Bmm"), _matrix_product),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "ScaledDotProductFlashAttentionForCpu": _attention,
    "Mean": _mean,
    **dict.fromkeys(("Std", "Var", "StdMean", "VarMean"), _spread),
    **dict.fromkeys(("NllLoss", "NllLoss2D"), _likelihood),
    **dict.fromkeys(
        (
            "MseLoss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "MultiMarginLoss", "MultilabelMarginLoss",
            "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits",
        ),
        _criterion,
    ),
}  # fmt: skip

_BACKWARD: dict[str, Callable[[GraphNode], Made | None]] = {
    "Sqrt": _of_result((Cause.SQRT_SLOPE, lambda x: x == 0), is_sure=True),
    **dict.fromkeys(("Log", "Log2", "Log10"), _of_input((Cause.LOG_SLOPE, lambda x: x == 0))),
    "Log1P": _of_input((Cause.LOG_SLOPE, lambda x: x == -1)),
    **dict.fromkeys(("Rsqrt", "Reciprocal"), _of_result((Cause.BY_ZERO, torch.isinf), is_sure=True)),
    "Pow": _power_slope,
    **dict.fromkeys(("Acos", "Asin", "Atanh"), _of_input((Cause.ARC_SLOPE, lambda x: x.abs() == 1))),
    "Acosh": _of_input((Cause.ARC_SLOPE, lambda x: x == 1)),
    "Div": _divided,
    **dict.fromkeys(("Exp", "Expm1", "Exp2"), _EXP),
}

WITH_SLOPES = frozenset(_BACKWARD)
"""The operations of which `slope_of` may tell."""
