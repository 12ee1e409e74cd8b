"""Find losses that apply softmax or sigmoid to what is the output of one already. Training thread, in a few sampled steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.torch_private.private_names import GraphNode, number_of

_FIRST = {"SoftmaxBackward0": "softmax", "SigmoidBackward0": "sigmoid"}
_SECOND = {
    "LogSoftmaxBackward0": ("log_softmax", {"SoftmaxBackward0"}),
    "BinaryCrossEntropyWithLogitsBackward0": ("binary_cross_entropy_with_logits", {*_FIRST}),
}
"""By gradient function of what normalizes again: its name, and what must not come before it. Sigmoids are also bounded scores,
of which a softmax may be taken."""
_KEEP = frozenset(
    f"{name}Backward{number}"
    for name in (
        "View", "UnsafeView", "ReshapeAlias", "Alias", "Clone", "Contiguous", "ToCopy", "T", "Transpose", "Permute", "Squeeze",
        "Unsqueeze", "Slice", "Select", "Index",
    )
    for number in (0, 1, 2)
)  # fmt: skip
"""Gradient functions of operations that choose or arrange elements, and leave their values as they are."""
_MAX = 500
"""Nodes that are visited, those next to the loss first."""


def normalized_twice(outputs: Sequence[object], log: ModuleCallLog) -> set[tuple[str, str, int]]:
    """Return (the first function, the second one, the index of the module that called the first one)."""
    roots = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    waiting, seen, found = deque(roots), set(roots), set()
    while waiting and len(seen) < _MAX:
        node = waiting.popleft()
        second = _SECOND.get(str(node.name()))
        before = _input_of(node) if second is not None else None
        if second is not None and before is not None and (name := str(before.name())) in second[1]:
            module = log.module_of(number_of(before)) if log.numbers else OUTSIDE
            found.add((_FIRST[name], second[0], module))
        for each, _ in node.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)
    return found


def _input_of(node: GraphNode) -> GraphNode | None:
    """Return what computed the values of the first argument; None if it requires no gradient."""
    found: GraphNode | None = node
    while found is not None and (found is node or str(found.name()) in _KEEP):
        found = found.next_functions[0][0] if found.next_functions else None
    return found
