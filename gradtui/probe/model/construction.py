"""Detect whether a module is being constructed: what its constructor calls belongs to loading. Training thread."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from weakref import WeakKeyDictionary

from torch import nn


def is_constructing() -> bool:
    """Return whether the constructor of a module is running on this thread.

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
    """Return the code of the constructors of all module classes, including those behind decorators."""
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
