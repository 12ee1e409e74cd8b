"""Find views that stand where a permutation is meant. Training thread, in a few sampled steps.

A view takes the elements in the order of memory, so that a row of the result has values of several positions and channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise, permutations
from operator import mul

import torch

from gradtui.probe.autograd.module_call_log import OUTSIDE, ModuleCallLog
from gradtui.probe.torch_private.graph_depth import deepest
from gradtui.probe.torch_private.private_names import GraphNode, number_of, sizes_of_result

Sizes = tuple[int, ...]

_VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
_OF_LAST = (
    "AddmmBackward0",
    "MmBackward0",
    "LinearBackward0",
    "NativeLayerNormBackward0",
    "LogSoftmaxBackward0",
    "MkldnnRnnLayerBackward0",
    "CudnnRnnBackward0",
)
"""Gradient functions of layers and losses to which the last dimension is that of the features."""
_OF_SECOND = ("ConvolutionBackward0",)
"""The same of the second dimension."""
_KEEP = ("AddBackward0", "NativeDropoutBackward0", "CloneBackward0", "ContiguousBackward0", "ToCopyBackward0")
"""Operations that leave the dimensions as they are."""
_MAX = 4_000
"""Nodes that are visited, those next to the loss first."""
_MIN_SIZES, _MAX_SIZES = 3, 5
_MAX_STEPS = 32
"""Nodes between a view and a layer."""


def mixed_axes(outputs: Sequence[object], log: ModuleCallLog) -> set[tuple[Sizes, Sizes, int]]:
    """Return (sizes before the view, sizes after it, the index of the module that calls it) of each such view.

    A reading without a permutation may exist by chance: it is excluded by what follows, a layer or loss for which the features
    are where the permutation would put them, and by sizes that merge or split in their order.
    """
    order = [each.grad_fn for each in outputs if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    seen = dict.fromkeys(order)
    views = []
    # Nodes with a Python object take space on the stack of this thread when the graph is freed (`graph_depth`).
    most = min(_MAX, deepest())
    # Operators in place of calls: most graphs have no such view, and each call of a node costs.
    for node in order:
        if node.name() in _VIEWS and is_permuted(*(sizes := _sizes(node))):
            views += [(node, *sizes)]
        for each, _ in node.next_functions:
            if each is not None and each not in seen and len(seen) < most:
                seen[each] = None
                order += [each]
    if not views:
        return set()
    users: dict[GraphNode, list[GraphNode]] = {each: [] for each in order}
    for node in order:
        for each, _ in node.next_functions:
            if each in users:
                users[each].append(node)
    return {
        (before, after, log.module_of(number_of(node)) if log.numbers else OUTSIDE)
        for node, before, after in views
        if _is_read_so(node, after, users)
    }


def is_permuted(before: Sizes, after: Sizes) -> bool:
    """Return whether a permutation with dimensions merged or split has these sizes, and no merging or splitting in order."""
    one, other = (tuple(each for each in sizes if each != 1) for sizes in (before, after))
    if not _MIN_SIZES <= max(len(one), len(other)) <= _MAX_SIZES or _merges(one, other) or _merges(other, one):
        return False
    if _has_common_parts(one, other) and not _are_tokens(before, after):
        return False
    few, many = sorted((one, other), key=len)
    return len(few) > 1 and any(_merges(each, few) for each in permutations(many))


def _has_common_parts(one: Sizes, other: Sizes) -> bool:
    """Return whether splitting dimensions in order, and merging some of the parts in order, makes one of the other.

    So `(T, N * heads, size)` becomes `(T * N, heads * size)`, whatever else these numbers are equal to.
    """
    ends = sorted({*accumulate(one, mul), *accumulate(other, mul)})
    return all(later % end == 0 for end, later in pairwise(ends))


def _are_tokens(before: Sizes, after: Sizes) -> bool:
    """Return whether a batch of maps becomes one of tokens, as many as a map has places, with as many features as channels."""
    return len(before) == 4 and after == (before[0], before[2] * before[3], before[1])


def _merges(many: Sizes, few: Sizes) -> bool:
    """Return whether the sizes `few` are those of adjacent dimensions of `many` that were merged, or the same."""
    at = 0
    for size in few:
        product = 1
        while product < size and at < len(many):
            product, at = product * many[at], at + 1
        if product != size:
            return False
    return at == len(many)


def _sizes(view: GraphNode) -> tuple[Sizes, Sizes]:
    """Return the sizes before and after a view; empty where they are unknown."""
    before = tuple(getattr(view, "_saved_self_sym_sizes", ()))
    after = sizes_of_result(view)
    return (before, after) if after and all(type(each) is int for each in before) else ((), ())


def _is_read_so(view: GraphNode, sizes: Sizes, users: dict[GraphNode, list[GraphNode]]) -> bool:
    """Return whether a layer takes the features from the last, or a convolution from the second, of these dimensions."""
    waiting, seen = [view], {view}
    while waiting and len(seen) < _MAX_STEPS:
        for user in users[waiting.pop()]:
            name = str(user.name())
            if name in _OF_LAST or (name in _OF_SECOND and len(sizes) >= _MIN_SIZES):
                return True
            if user not in seen and (name in _KEEP or _is_of_rows(user, name, sizes)):
                seen.add(user)
                waiting.append(user)
    return False


def _is_of_rows(node: GraphNode, name: str, sizes: Sizes) -> bool:
    """Return whether an operation only arranges the rows of features: a view, or an exchange of the first dimensions."""
    if name == "TransposeBackward0":
        return {node._saved_dim0 % 2**64, node._saved_dim1 % 2**64} == {0, 1}  # noqa: SLF001 - how nodes name what they save
    return name in _VIEWS and _sizes(node)[1][-1:] == sizes[-1:]
