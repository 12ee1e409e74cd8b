"""Follow NaN or Inf from the operation that made them towards the loss. Runs on the training thread.

Some operations stop them: an index, a mask or `torch.where` may leave these elements out, and others make a finite number of
Inf. What autograd saves of an index or mask says which elements it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from gradtui.probe.gradients.nonfinite_values import Made, as_dim, kind_of_node, saved
from gradtui.probe.torch_private.private_names import GraphNode, saved_data
from gradtui.probe.torch_private.unshown_tensors import saved as shown_of
from gradtui.protocol.nonfinite import MAKE_INF

_KEEP_SHAPE = frozenset(
    (
        "Abs", "Add", "Ceil", "Clone", "Cos", "Div", "Exp", "Log", "Log10", "Log1P", "Log2", "LogSoftmax", "Mul", "Neg", "Pow",
        "Rsub", "Sin", "Softmax", "Sqrt", "Square", "Sub", "ToCopy",
    )
)  # fmt: skip
_SELECT = frozenset(
    (
        "Gather",
        "Index",
        "IndexSelect",
        "MaskedFill",
        "MaskedSelect",
        "NanToNum",
        "Select",
        "Slice",
        "Where",
        "Split",
        "Unbind",
    )
)
"""They may leave elements out."""
_MAKE_FINITE = frozenset(
    (
        "Amax", "Amin", "Atan", "Clamp", "ClampMax", "ClampMin", "Elu", "Erf", "Exp", "Gelu", "Hardtanh", "LogSigmoid",
        "Logsumexp", "Max", "Maximum", "Min", "Minimum", "Reciprocal", "Relu", "Sigmoid", "Silu", "Softmax", "Softplus", "Tanh",
        "Threshold",
    )
)  # fmt: skip
"""They may make a finite number of Inf or -Inf."""
_MAX = 4_096
"""Operations that are followed from one."""


def reaches(node: GraphNode, made: Made, ends: Iterable[GraphNode], within: Collection[GraphNode]) -> bool | None:
    """Return whether what `node` made comes to one of `ends` through the operations `within`; None if it only may."""
    users: dict[GraphNode, list[tuple[GraphNode, int]]] = {}
    for each in within:
        for position, (before, _) in enumerate(each.next_functions):
            if before is not None:
                users.setdefault(before, []).append((each, position))
    wanted, is_inf = set(ends), made.cause in MAKE_INF
    seen, may = set[GraphNode](), False
    waiting = [(node, made.at, True)]
    while waiting and len(seen) < _MAX:
        present, at, is_sure = waiting.pop()
        if present in wanted:
            if is_sure:
                return True
            may = True
        if present in seen:
            continue
        seen.add(present)
        for user, position in users.get(present, ()):
            kind = kind_of_node(user)
            passed = _through(user, kind, position, at)
            if passed is not None and not bool(passed.any()):
                continue
            unknown = (kind in _SELECT and passed is None) or (is_inf and _is_finite(kind, position))
            # What is sure is followed first.
            waiting.insert(0 if unknown else len(waiting), (user, passed, is_sure and not unknown))
    return None if may else False


def _is_finite(kind: str, position: int) -> bool:
    # A divisor that is Inf makes 0.
    return kind in _MAKE_FINITE or (kind == "Div" and position == 1)


def _through(user: GraphNode, kind: str, position: int, at: torch.Tensor | None) -> torch.Tensor | None:
    """Return the mask of the elements of the result of `user` that `at`, of its operand, comes to; None if it is not known."""
    if at is None:
        return None
    try:
        return _taken(user, kind, position, at)
    except (RuntimeError, TypeError, AttributeError, IndexError):
        # The operand was broadcast to another shape.
        return None


def _taken(user: GraphNode, kind: str, position: int, at: torch.Tensor) -> torch.Tensor | None:  # noqa: C901 - a case for each operation
    if kind in _KEEP_SHAPE:
        return at
    if kind in ("Sum", "Mean"):
        dims = getattr(user, "_saved_dim", None)
        if not dims:
            return at.any()
        for dim in sorted((as_dim(each) % at.dim() for each in dims), reverse=True):
            at = at.any(dim, keepdim=bool(user._saved_keepdim))  # noqa: SLF001 - how nodes name what they save
        return at
    if kind in ("Where", "MaskedFill"):
        mask = saved(user, "condition" if kind == "Where" else "mask")
        if mask is None:
            return None
        return at & (mask if kind == "Where" and position == 0 else ~mask)
    if kind == "Gather":
        index = saved(user, "index")
        return at.gather(as_dim(user._saved_dim), index) if index is not None else None  # noqa: SLF001
    if kind == "Select":
        return at.select(as_dim(user._saved_dim), as_dim(user._saved_index))  # noqa: SLF001
    if kind == "Slice":
        start, end = as_dim(user._saved_start), as_dim(user._saved_end)  # noqa: SLF001
        rows = at.movedim(dim := as_dim(user._saved_dim), 0)  # noqa: SLF001
        return rows[start : end : user._saved_step].movedim(0, dim)  # noqa: SLF001
    if kind == "Index":
        indices = [saved_data(each) for each in shown_of(user, "_raw_saved_indices")]
        return at[tuple(slice(None) if each is None else each for each in indices)]
    return None
