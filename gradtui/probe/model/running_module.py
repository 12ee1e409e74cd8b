"""Which module's code was running where something failed. Any thread.

Modules are watched one by one on sampled steps only; at any other moment the Python frames tell, of a forward, and the node
that autograd is at, of a backward.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from types import CellType, FrameType, TracebackType

import torch
from torch import nn

from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, running_node

_CALL_CODE = getattr(getattr(nn.Module, "_call_impl", None), "__code__", None)
"""The function of torch's that calls every forward: its first local variable is the module."""


def raised_in(entries: TracebackType | None) -> nn.Module | None:
    """The innermost module that an exception came out of, by its traceback; None if it came out of none."""
    innermost = None
    while entries is not None:
        if entries.tb_frame.f_code is _CALL_CODE:
            innermost = entries.tb_frame
        entries = entries.tb_next
    return _ended(innermost) if innermost is not None else None


def _ended(frame: FrameType) -> nn.Module | None:
    """The module of a frame that has ended.

    `f_locals` would, up to Python 3.12, leave a copy of the frame's references behind, which outlives
    `traceback.clear_frames`; the collector's view of a frame does not.
    """
    for held in gc.get_referents(frame):
        value = held.cell_contents if isinstance(held, CellType) else held
        if isinstance(value, nn.Module):
            return value
    return None


def running() -> nn.Module | None:
    """The innermost module whose forward the calling thread is in."""
    for frame in _stack():
        if frame.f_code is _CALL_CODE:
            return _unended(frame)
    return None


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `inspect.currentframe` is the same call
    while frame is not None:
        yield frame
        frame = frame.f_back


def _unended(frame: FrameType) -> nn.Module | None:
    names = frame.f_locals
    module = names.get("self")
    if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
        # A copy that lives as long as the call: the call's arguments would be kept with it.
        names.clear()
    return module if isinstance(module, nn.Module) else None


def parameter_in_backward(place_of: Callable[[torch.Tensor], int | None]) -> int | None:
    """The place of a parameter of the operation whose backward the calling thread is in; None outside of one."""
    node = running_node()
    return nearest_leaf(node, place_of) if node is not None else None


def nearest_leaf(node: GraphNode, place_of: Callable[[torch.Tensor], int | None], *, hops: int = 2) -> int | None:
    """The place of a parameter that this operation takes itself, or through a view or a cast of it; None if it takes none."""
    waiting = [(node, hops)]
    while waiting:
        current, left = waiting.pop()
        for following, _ in current.next_functions:
            if following is None:
                continue
            leaf = leaf_of(following)
            place = place_of(leaf) if leaf is not None else None
            if place is not None:
                return place
            if left > 1 and leaf is None and len(following.next_functions) == 1:
                waiting.append((following, left - 1))
    return None
