"""Find out how much of the script's loops is done, from the source of the frames that run. Training thread.

`for step in range(n)` keeps its iterator where Python code cannot read it. But the source says what the loop goes through, and
its variable says where it is. Nothing of the script is called: only constants, variables, entries of containers, and fields
of modules and plain objects are read, with their sums and products.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any

from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.model import locals_of
from gradtui.system.own_frames import is_hidden, is_of_script

_WRAPPERS = {"tqdm", "tqdm_notebook", "auto_tqdm", "trange", "track", "enumerate"}
_MAX_SOURCE = 3_000
"""Lines of a longer file are not parsed: it takes too long."""
_PASSED = ("torch", "accelerate")
"""Packages without loops over steps, whose functions may stand between the script's loop and a step."""
_OPERATIONS = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_STEP_FILE = sys.modules[Optimizer.__module__].__file__
"""Of the wrapper that calls the hooks of a step."""
_bodies: dict[tuple[str, int, str], list[ast.stmt] | None] = {}
"""By file, first line and name of a function: its statements."""


class Position(NamedTuple):
    """Where the script's loops are."""

    loops: tuple[tuple[str, int], ...]
    """The file and the line of each, the outermost first."""
    done: float
    """The part of all iterations that is done, 0 to 1. The present iteration of the innermost loop counts."""
    source: str
    """What the outermost loop goes through."""


def loop_position(of_loader: float | None) -> Position | None:
    """Return where the loops are in which a step has just ended; None where they have no known end.

    `of_loader` is the part of the present epoch's batches that is done; None if it is unknown.
    """
    found: list[tuple[FrameType, list[ast.For | ast.While]]] = []
    for frame, is_beyond in _script_frames():
        loops = _loops_around(frame)
        # A package in between may have loops of its own.
        if loops is None or (loops and is_beyond):
            return None
        found.append((frame, loops))
    # From the innermost loop out.
    around = [(frame, loop) for frame, loops in found for loop in reversed(loops)]
    done: float | None = None
    source = ""
    for frame, loop in around:
        counted = _counted(frame, loop)
        if counted is None and done is None and isinstance(loop, ast.For):
            done, source = of_loader, "DataLoader"
        elif counted is not None:
            index, count = counted
            done = (index + (1.0 if done is None else done)) / count
            source = f"range({count})"
        else:
            done = None
        if done is None:
            return None
    places = tuple((frame.f_code.co_filename, loop.lineno) for frame, loop in reversed(around))
    return Position(places, min(1.0, done), source) if done is not None else None


def _script_frames() -> Iterator[tuple[FrameType, bool]]:
    """Yield the frames of the script, the innermost first, and whether another package stands between them and a step.

    None if no optimizer's step is running.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
    is_in_step = is_beyond = False
    while frame is not None:
        file = frame.f_code.co_filename
        is_in_step |= file == _STEP_FILE
        if is_of_script(file) and not is_hidden(frame.f_code):
            if not is_in_step:
                return
            yield frame, is_beyond
        elif "-packages" in file:
            is_beyond |= not any(f"{os.sep}{each}{os.sep}" in file for each in _PASSED)
        frame = frame.f_back


def _loops_around(frame: FrameType) -> list[ast.For | ast.While] | None:
    """Return the loops around the line that a frame is at, the outermost first; None where there is no source."""
    code = frame.f_code
    key = code.co_filename, code.co_firstlineno, code.co_name
    if key not in _bodies:
        _bodies[key] = _body_of(*key)
    body = _bodies[key]
    if body is None:
        return None
    found: list[ast.For | ast.While] = []
    at = frame.f_lineno
    while True:
        inner = next((each for each in body if each.lineno <= at <= (each.end_lineno or 0)), None)
        if inner is None or isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return found
        blocks = [getattr(inner, name, ()) for name in ("body", "orelse", "finalbody")]
        blocks += [each.body for name in ("handlers", "cases") for each in getattr(inner, name, ())]
        body = next((block for block in blocks if block and block[0].lineno <= at <= (block[-1].end_lineno or 0)), [])
        if isinstance(inner, (ast.For, ast.While)) and body is inner.body:
            found.append(inner)
        if not body:
            return found


def _body_of(file: str, line: int, name: str) -> list[ast.stmt] | None:
    """Return the statements of a function, or of a file for "<module>"; None where there is no source."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines)) if 0 < len(lines) <= _MAX_SOURCE else None
    except (SyntaxError, ValueError, RecursionError):
        tree = None
    if tree is None or name == "<module>":
        return tree.body if tree is not None else None
    functions = (each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
    begins = ((min([each.lineno, *(one.lineno for one in each.decorator_list)]), each) for each in functions)
    return next((each.body for begin, each in begins if begin == line and each.name == name), None)


def _counted(frame: FrameType, loop: ast.For | ast.While) -> tuple[int, int] | None:
    """Return the index of the present iteration of a loop, and the number of all iterations; None where they are unknown."""
    names = _Names(frame)
    if isinstance(loop, ast.While):
        return _counted_while(names, loop.test)
    iterated, target = loop.iter, loop.target
    while isinstance(iterated, ast.Call) and (name := _name_of(iterated.func)) in _WRAPPERS and iterated.args:
        if name == "enumerate":
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                return None
            target = target.elts[1]
        elif name == "trange":
            break
        iterated = iterated.args[0]
    if not isinstance(iterated, ast.Call) or _name_of(iterated.func) not in ("range", "trange"):
        return None
    limits = [names.value(each) for each in iterated.args]
    present = names.value(target)
    if not 0 < len(limits) <= 3 or type(present) is not int or any(type(each) is not int for each in limits):
        return None
    whole = range(*limits)
    return (whole.index(present), len(whole)) if present in whole else None


def _counted_while(names: _Names, test: ast.expr) -> tuple[int, int] | None:
    """Return the same of `while step < n`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return None
    present, end = names.value(test.left), names.value(test.comparators[0])
    if type(present) is not int or type(end) is not int:
        return None
    end += isinstance(test.ops[0], ast.LtE)
    return (present, end) if 0 <= present < end else None


def _name_of(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


class _Names:
    """The variables of a frame."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._own: Mapping[str, Any] | None = None

    def value(self, expression: ast.expr) -> Any:
        """Return the value of an expression without calling code of the script; None where it cannot be had."""
        if isinstance(expression, ast.Constant):
            return expression.value
        if isinstance(expression, ast.Name):
            return self._variable(expression.id)
        if isinstance(expression, ast.Attribute):
            return _field(self.value(expression.value), expression.attr)
        if isinstance(expression, ast.Subscript):
            return _entry(self.value(expression.value), self.value(expression.slice))
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and len(expression.args) == 1:
            is_own = self._variable(expression.func.id) is not None
            return None if is_own else _built_in(expression.func.id, self.value(expression.args[0]))
        if isinstance(expression, ast.BinOp):
            apply = _OPERATIONS.get(type(expression.op))
            sides = [self.value(expression.left), self.value(expression.right)]
            is_plain = apply is not None and all(type(each) is int for each in sides)
            return apply(*sides) if apply is not None and is_plain and sides[1] else None
        return None

    def _variable(self, name: str) -> Any:
        if self._own is None:
            is_module = self._frame.f_code.co_name == "<module>"
            self._own = {} if is_module else locals_of(self._frame)
        return self._own[name] if name in self._own else self._frame.f_globals.get(name)


def _entry(holder: Any, key: Any) -> Any:
    """Return an entry of a plain dict, list or tuple."""
    if type(holder) is dict:
        return holder.get(key) if type(key) in (str, int) else None
    is_known = type(holder) in (list, tuple) and type(key) is int and -len(holder) <= key < len(holder)
    return holder[key] if is_known else None


def _built_in(name: str, value: Any) -> int | None:
    """Return `int(value)` or `len(value)` of a plain value."""
    if name == "len" and type(value) in (list, tuple, dict, range, str):
        return len(value)
    if name == "int" and type(value) in (int, str, float):
        with suppress(ValueError, OverflowError):
            return int(value)
    return None


def _field(holder: Any, name: str) -> Any:
    """Return a field of an object that has no code of its own for that."""
    kind = type(holder)
    is_plain = kind is ModuleType or getattr(kind, "__getattribute__") is object.__getattribute__  # noqa: B009
    fields = getattr(holder, "__dict__", None) if is_plain else None
    return fields.get(name) if type(fields) is dict else None
