"""Find the module whose code is running, or was running when something failed. Any thread.

Calls of single modules are logged on sampled steps only. At any other time the Python frames identify the module in a
forward, and the current autograd node identifies it in a backward.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from traceback import walk_stack, walk_tb
from types import CellType, CodeType, FrameType, TracebackType
from weakref import WeakKeyDictionary

import torch
from torch import nn

from gradtui.probe.torch_private.private_names import GraphNode, leaf_of

_CALL_CODE = getattr(getattr(nn.Module, "_call_impl", None), "__code__", None)
"""The code of torch's function that calls every forward: its first local variable is the module."""


def raised_in(entries: TracebackType | None) -> nn.Module | None:
    """Return the innermost module that an exception came out of, by its traceback; None if it came out of none."""
    calls = [frame for frame, _ in walk_tb(entries) if frame.f_code is _CALL_CODE]
    return _ended(calls[-1]) if calls else None


def _ended(frame: FrameType) -> nn.Module | None:
    """Return the module of a frame that has ended.

    Up to Python 3.12, `f_locals` would leave a copy of the frame's references behind, which outlives
    `traceback.clear_frames`. The collector's view of a frame does not.
    """
    for held in gc.get_referents(frame):
        value = held.cell_contents if isinstance(held, CellType) else held
        if isinstance(value, nn.Module):
            return value
    return None


def running() -> nn.Module | None:
    """Return the innermost module whose forward the calling thread is in."""
    for frame, _ in walk_stack(sys._getframe(1)):  # noqa: SLF001 - `inspect.currentframe` is the same call
        if frame.f_code is _CALL_CODE:
            return _unended(frame)
    return None


def _unended(frame: FrameType) -> nn.Module | None:
    names = frame.f_locals
    module = names.get("self")
    if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
        # This copy lives as long as the call, and would keep the call's arguments alive.
        names.clear()
    return module if isinstance(module, nn.Module) else None


def nearest_leaf(node: GraphNode, index_of: Callable[[torch.Tensor], int | None], *, hops: int = 2) -> int | None:
    """Return the index of a parameter that is an input of this operation, through a view or cast too; None if none is."""
    waiting = [(node, hops)]
    while waiting:
        current, left = waiting.pop()
        for following, _ in current.next_functions:
            if following is None:
                continue
            leaf = leaf_of(following)
            index = index_of(leaf) if leaf is not None else None
            if index is not None:
                return index
            if left > 1 and leaf is None and len(following.next_functions) == 1:
                waiting.append((following, left - 1))
    return None


def is_constructing() -> bool:
    """Return whether the constructor of a module is running on this thread: what it calls belongs to loading.

    It compares the frames' code: reading `f_locals` would keep the script's variables alive.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__":
            known = _constructs_module.get(code)
            if known is None:
                known = _constructs_module[code] = code in _constructors()
            if known:
                return True
        frame = frame.f_back
    return False


_constructs_module: WeakKeyDictionary[CodeType, bool] = WeakKeyDictionary()


def _constructors() -> set[CodeType]:
    found: set[CodeType] = set()
    for kind in module_classes():
        function = vars(kind).get("__init__")
        while function is not None:
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
            function = getattr(function, "__wrapped__", None)
    return found


def module_classes() -> set[type]:
    """Return `nn.Module` and all its subclasses."""
    found: set[type] = set()
    waiting: list[type] = [nn.Module]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += type.__subclasses__(kind)
    return found
