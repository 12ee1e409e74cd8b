"""Find the operation that made a tensor saved by autograd, by names that torch does not promise to keep. Training thread.

A node's `_saved_x` unpacks the content of its `_raw_saved_x`: a tensor with its `grad_fn`, which for an operation's own
result is that node. It is read only where no hook would run. Where a name is missing nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.private_names import GraphNode, saved_data
from gradtui.probe.torch_private.unshown_tensors import saved

_RAW = "_raw_saved_"
_OWN = ("_saved_result", "_saved_output", "_saved_logsumexp")
"""Prefixes of the names of an operation's own results, including those that have no gradient (the mean of a LayerNorm)."""


def kept_by(node: GraphNode) -> Iterator[tuple[torch.Tensor, GraphNode | None]]:
    """Yield the tensors that a node saves, each with the operation that made it: None where no operation of the graph did."""
    for raw in dir(node):
        if not raw.startswith(_RAW):
            continue
        held = getattr(node, raw) if unshown_tensors.ARE_SHOWN else saved(node, raw)
        several = isinstance(held, (tuple, list))
        for index, shown in enumerate(held if several else (held,)):
            data = saved_data(shown)
            if data is not None:
                yield data, _maker(node, raw.removeprefix("_raw"), index if several else None)


def _maker(node: GraphNode, name: str, index: int | None) -> GraphNode | None:
    try:
        # A custom Function's node has the name without the underscore.
        value: Any = getattr(node, name if hasattr(type(node), name) else name[1:])
        made_by: GraphNode | None = (value if index is None else value[index]).grad_fn
    except (RuntimeError, AttributeError, IndexError):
        # Written in place since, or hooked in part: the origin is unknown, so it is attributed to this node.
        return node
    return node if made_by is None and name.startswith(_OWN) else made_by
