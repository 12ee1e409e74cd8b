"""Which operation made a tensor that autograd keeps, by names that torch does not promise to keep. Training thread.

A node's `_saved_x` unpacks what its `_raw_saved_x` holds: a tensor that knows its `grad_fn`, which for an operation's own
result is that node. It is asked for only where no hook would run. Where a name is missing nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gradtui.probe.torch_private.private_names import GraphNode, saved_data

_RAW = "_raw_saved_"
_OWN = ("_saved_result", "_saved_output", "_saved_logsumexp")
"""What begins so is the operation's own result, also where it is one that has no gradient (the mean of a LayerNorm)."""


def kept_by(node: GraphNode) -> Iterator[tuple[torch.Tensor, GraphNode | None]]:
    """The tensors that a node keeps, each with the operation that made it: None where none of the graph did."""
    for raw in dir(node):
        if not raw.startswith(_RAW):
            continue
        held = getattr(node, raw)
        several = isinstance(held, (tuple, list))
        for place, saved in enumerate(held if several else (held,)):
            data = saved_data(saved)
            if data is not None:
                yield data, _maker(node, raw.removeprefix("_raw"), place if several else None)


def _maker(node: GraphNode, name: str, place: int | None) -> GraphNode | None:
    try:
        # A custom Function's node has the name without the underscore.
        value: Any = getattr(node, name if hasattr(type(node), name) else name[1:])
        made_by: GraphNode | None = (value if place is None else value[place]).grad_fn
    except (RuntimeError, AttributeError, IndexError):
        # Written to in place since, or hooked in part: whose it is cannot be told, so it is taken for this one's.
        return node
    return node if made_by is None and name.startswith(_OWN) else made_by
