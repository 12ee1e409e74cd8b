"""Find losses whose input is of another kind than they expect. Training thread, in a few sampled steps.

`cross_entropy` and `binary_cross_entropy_with_logits` expect logits.
`nll_loss` and `kl_div` expect logarithms of probabilities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.torch_private.private_names import GraphNode, modes_are_active, number_of, saved_data
from gradtui.probe.torch_private.unshown_tensors import saved

_PROBABILITIES = {"SoftmaxBackward0": "softmax", "SigmoidBackward0": "sigmoid"}
_LOGITS = {
    "AddmmBackward0": "a linear layer", "MmBackward0": "a linear layer", "LinearBackward0": "a linear layer",
    "ConvolutionBackward0": "a convolution", "ReluBackward0": "relu", "LeakyReluBackward0": "leaky_relu",
    "GeluBackward0": "gelu", "TanhBackward0": "tanh",
}  # fmt: skip
_UNFIT = {
    "LogSoftmaxBackward0": ("log_softmax", {"SoftmaxBackward0": "softmax"}),
    "BinaryCrossEntropyWithLogitsBackward0": ("binary_cross_entropy_with_logits", _PROBABILITIES),
    "NllLossBackward0": ("nll_loss", _PROBABILITIES | _LOGITS),
    "NllLoss2DBackward0": ("nll_loss", _PROBABILITIES | _LOGITS),
}
"""By gradient function of the loss: its name, and what must not compute its input. A softmax may be taken of sigmoids: they
are also bounded scores."""
_OTHER_DIMENSION = "log_softmax over the batch"
_LOG_OF_OTHER_DIMENSION = "the log of a softmax over the batch"
_KEEP = frozenset(
    f"{name}Backward{number}"
    for name in (
        "View", "UnsafeView", "ReshapeAlias", "Alias", "Clone", "Contiguous", "ToCopy", "T", "Transpose", "Permute", "Squeeze",
        "Unsqueeze", "Slice", "Select", "Index",
    )
    for number in (0, 1, 2)
)  # fmt: skip
"""Gradient functions of operations that choose or arrange elements, and leave their values as they are."""
_MAX_READ = 100_000
_ROUNDED = 0.01
"""By how much a sum of 16-bit probabilities may miss 1."""
_MAX = 500
"""Nodes that are visited, those next to the loss first."""


def unfit_loss_inputs(outputs: Sequence[object], log: ModuleCallLog) -> set[tuple[str, str, int]]:
    """Return (what computed the input of a loss, the loss, the index of the module that computed the input)."""
    roots = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    waiting, seen, found = deque(roots), set(roots), set()
    while waiting and len(seen) < _MAX:
        node = waiting.popleft()
        for loss, kind, before in _unfit(node):
            found.add((kind, loss, log.module_of(number_of(before)) if log.numbers else OUTSIDE))
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)
    return found


def _unfit(node: GraphNode) -> Iterator[tuple[str, str, GraphNode]]:
    name = str(node.name())
    if name in _UNFIT:
        loss, kinds = _UNFIT[name]
        before = _values_of(node.next_functions[0][0])
        if before is not None and (kind := kinds.get(str(before.name()))) is not None:
            yield loss, kind, before
        elif name == "NllLossBackward0" and (direct := node.next_functions[0][0]) is not None:
            is_log = direct.name() == "LogBackward0"
            last = direct.next_functions[0][0] if is_log else direct
            if last is not None and _is_over_batch(node, last, "SoftmaxBackward0" if is_log else "LogSoftmaxBackward0"):
                yield loss, _LOG_OF_OTHER_DIMENSION if is_log else _OTHER_DIMENSION, last
    elif (product := _product_of_divergence(node)) is not None:
        before = _values_of(_second_alone(product))
        kind = _PROBABILITIES.get(str(before.name())) if before is not None else None
        if before is not None and kind is not None and _has_probabilities(product, sum_to_one=kind == "softmax"):
            yield "kl_div", kind, before


def _values_of(node: GraphNode | None) -> GraphNode | None:
    """Return what computed the values that this node may only have arranged; None if they require no gradient."""
    while node is not None and str(node.name()) in _KEEP:
        node = node.next_functions[0][0] if node.next_functions else None
    return node


def _is_over_batch(loss: GraphNode, before: GraphNode, name: str) -> bool:
    """Return whether the input of shape (N, C) comes from this function, a softmax or log_softmax, over N.

    False if N is C: the likelihood of pairs is that of the diagonal, with the sum over either dimension.
    """
    if before.name() != name or before._saved_dim not in (0, 2**64 - 2):  # noqa: SLF001
        return False
    shown = saved(loss, "_raw_saved_self")
    data = saved_data(shown) if shown is not None else None
    return data is not None and data.dim() == 2 and data.size(0) != data.size(1)


def _product_of_divergence(reduction: GraphNode) -> GraphNode | None:
    """Return what computed target * input, if `reduction` sums what `kl_div` computes: xlogy(target, target) - target * input.

    Source: ATen/native/Loss.cpp. The target requires no gradient.
    """
    if not str(reduction.name()).startswith(("SumBackward", "MeanBackward")):
        return None
    difference = reduction.next_functions[0][0]
    product = _second_alone(difference) if difference is not None and difference.name() == "SubBackward0" else None
    return product if product is not None and product.name() == "MulBackward0" else None


def _has_probabilities(product: GraphNode, *, sum_to_one: bool) -> bool:
    """Return whether the first factor may be the target of `kl_div`: the script may compute an expected regret in the same way.

    True where reading it would take long, or wait for a device.
    """
    shown = saved(product, "_raw_saved_self")
    data = saved_data(shown) if shown is not None else None
    if data is None or not data.is_cpu or data.numel() > _MAX_READ or modes_are_active():
        return True
    with torch.no_grad():
        if not bool(((data >= 0) & (data <= 1)).all()):
            return False
        return not sum_to_one or any(bool(((data.sum(dim) - 1).abs() < _ROUNDED).all()) for dim in range(data.dim()))


def _second_alone(node: GraphNode) -> GraphNode | None:
    """Return what computed the second operand, if the first one requires no gradient."""
    functions = [each for each, _ in node.next_functions]
    return functions[1] if len(functions) == 2 and functions[0] is None else None
