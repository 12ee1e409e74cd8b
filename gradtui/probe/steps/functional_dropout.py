"""Find modules whose forward calls `functional.dropout` without saying whether the module is in train mode. Training thread.

`functional.dropout` has `training=True` by default (PyTorch), so `eval()` does not switch it off.
"""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any

from torch import nn

_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d")
_FUNCTIONS = tuple(getattr(nn.functional, name) for name in _NAMES)


def calls_dropout_always(kind: type[nn.Module]) -> bool:
    """Return whether the forward of a class calls such a function, and names `training` nowhere."""
    forward = getattr(kind, "forward", None)
    if not isinstance(forward, FunctionType):
        return False
    code = forward.__code__
    named = {*code.co_names, *code.co_varnames}
    # The names of keyword arguments are a tuple of constants.
    named.update(name for each in code.co_consts if isinstance(each, tuple) for name in each if isinstance(name, str))
    if "training" in named or not (any(name in named for name in _NAMES) or _is_alias(forward.__globals__, named)):
        return False
    owner: Any = None
    for each in dis.get_instructions(code):
        if each.opname.startswith("LOAD_GLOBAL"):
            owner = forward.__globals__.get(each.argval)
            if _is_dropout(owner):
                return True
        elif each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and owner is not None:
            owner = vars(owner).get(each.argval) if type(owner) is type(nn) else None
            if _is_dropout(owner):
                return True
        else:
            owner = None
    return False


def _is_dropout(found: object) -> bool:
    return any(found is each for each in _FUNCTIONS)


def _is_alias(names: dict[str, Any], named: set[str]) -> bool:
    return any(_is_dropout(names.get(each)) for each in named)
