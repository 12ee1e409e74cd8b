"""Find modules whose forward calls `functional.dropout` without saying whether the module is in train mode. Training thread.

`functional.dropout` has `training=True` by default (PyTorch), so `eval()` does not switch it off.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d")
_FUNCTIONS = tuple(getattr(nn.functional, name) for name in _NAMES)
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.While)
_MOST_ARGUMENTS = 2
"""The input and the probability; the third one says whether to leave out units."""


def dropout_always(kind: type[nn.Module]) -> list[ast.Call]:
    """Return the calls of such a function in the forward of a class that no branch leaves out; none if it names `training`.

    None either where its source is not available.
    """
    forward = getattr(kind, "forward", None)
    if not isinstance(forward, FunctionType):
        return []
    code = forward.__code__
    named = {*code.co_names, *code.co_varnames}
    if not (any(name in named for name in _NAMES) or any(_is_dropout(forward.__globals__.get(each)) for each in named)):
        return []
    try:
        # `inspect.getsource` looks at all modules, and a lazy one imports what is asked of it.
        lines = inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])
        (function,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(function, ast.FunctionDef) or _depends_on_mode(function):
        return []
    calls = (each for each in _unconditional(function) if _is_dropout(_value(each.func, forward.__globals__)))
    return [each for each in calls if _has_no_flag(each)]


def leaves_out_units(module: nn.Module, calls: list[ast.Call]) -> bool:
    """Return whether the probability of one of the calls in a module's forward is not known to be 0."""
    return any(_probability(each, module) for each in calls)


def _depends_on_mode(function: ast.FunctionDef) -> bool:
    """Return whether a function names `training`, or may end before its end."""
    for each in ast.walk(function):
        if "training" in (getattr(each, "attr", None), getattr(each, "id", None), getattr(each, "arg", None)):
            return True
        if isinstance(each, ast.If) and any(isinstance(within, ast.Return) for within in ast.walk(each)):
            return True
    return False


def _unconditional(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that no branch leaves out."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, _BRANCHES):
            continue
        if isinstance(each, ast.Call):
            yield each
        yield from _unconditional(each)


def _has_no_flag(call: ast.Call) -> bool:
    is_starred = any(isinstance(each, ast.Starred) for each in call.args) or any(
        each.arg is None for each in call.keywords
    )
    return len(call.args) <= _MOST_ARGUMENTS and not is_starred


def _probability(call: ast.Call, module: nn.Module) -> object:
    """Return the probability with which it leaves out units; True if it is computed."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "p")]
    if not given:
        return True
    if isinstance(given[0], ast.Constant):
        return given[0].value
    if isinstance(given[0], ast.Attribute) and isinstance(given[0].value, ast.Name):
        # An attribute of the module, mostly. Properties are not called.
        value = inspect.getattr_static(module, given[0].attr, True)
        return value if isinstance(value, (int, float)) else True
    return True


def _value(node: ast.expr, names: dict[str, Any]) -> object:
    """Return what a name stands for, or an attribute of a Python module; None if it is something else."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, names)
        return vars(owner).get(node.attr) if type(owner) is type(nn) else None
    return None


def _is_dropout(found: object) -> bool:
    return any(found is each for each in _FUNCTIONS)
