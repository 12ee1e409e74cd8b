"""Find operations whose derivative is zero everywhere, between the loss and parameters with a gradient of zeros.

Training thread, in a few sampled steps after such parameters were found.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of

_NAMES = {f"{name}Backward0": f"torch.{name.lower()}" for name in ("Round", "Floor", "Ceil", "Trunc", "Sign", "Sgn")}
"""Gradient functions that return zeros (PyTorch: tools/autograd/derivatives.yaml), and the functions that they are of."""
_MAX = 20_000
"""Nodes that are visited."""


def zero_derivatives(
    outputs: Sequence[object], log: ModuleCallLog, parameters: Container[int]
) -> list[tuple[str, int, list[int]]]:
    """Return such operations: the function, the index of the module that called it, and the parameters behind it.

    `parameters` has the id() of each parameter whose gradient is zeros. A gradient that also takes another way is not zero.
    """
    roots = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    found = []
    for node in _below(roots):
        function = _NAMES.get(_name(node))
        if function is not None:
            behind = [
                id(leaf) for each in _below([node]) if (leaf := leaf_of(each)) is not None and id(leaf) in parameters
            ]
            if behind:
                module = log.module_of(number_of(node)) if log.numbers else OUTSIDE
                found.append((function, module, behind))
    return found


def _below(roots: Sequence[GraphNode]) -> list[GraphNode]:
    """Return these nodes and all that they lead to, up to a number of nodes."""
    waiting, seen = list(roots), dict.fromkeys(roots)
    while waiting and len(seen) < _MAX:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen[node] = None
                waiting.append(node)
    return list(seen)


def _name(node: GraphNode) -> str:
    return str(node.name())
