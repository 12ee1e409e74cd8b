"""Make a wrapper's frames look like those of the torch function it replaces, in warnings, tracebacks and profilers.

`nn.Module.__call__` is `_wrapped_call_impl`, which only calls `_call_impl`. gradtui's wrapper calls `_call_impl` itself, so
that a deep model needs no more of Python's stack. The frame of the wrapper takes the place of torch's frame: it has the
same file, name, line and module, whichever of its instructions runs.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from gradtui.named_tuple import NamedTuple

Function = Callable[..., Any]

_UNITS = 8
"""The most code units (of two bytes) that one entry of a line table covers, on Python 3.11 and later."""


class Position(NamedTuple):
    """The position of a call in a source file. The last three fields are None on Python 3.10."""

    line: int
    end_line: int | None
    column: int | None
    end_column: int | None


def stands_for(function: Function, original: Function, called: str) -> FunctionType | None:
    """Return a copy of `function` whose frames look like frames of `original` where it calls the method `called`.

    `function` must not use globals: its copy has those of `original`. Returns None where `original` makes no such call.
    """
    position = call_position(original, called)
    if position is None or not (isinstance(function, FunctionType) and isinstance(original, FunctionType)):
        return None
    theirs, ours = original.__code__, function.__code__
    table = _line_table(len(ours.co_code), position, theirs.co_firstlineno)
    code = ours.replace(
        co_filename=theirs.co_filename, co_name=theirs.co_name, co_firstlineno=theirs.co_firstlineno, co_linetable=table
    )
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=theirs.co_qualname)
    return FunctionType(code, original.__globals__, function.__name__, function.__defaults__, function.__closure__)


def call_position(function: Function, called: str) -> Position | None:
    """Return the position at which `function` calls the method `called`, None if it does not."""
    if not isinstance(function, FunctionType):
        return None
    is_next, line = False, function.__code__.co_firstlineno
    for instruction in dis.get_instructions(function):
        if sys.version_info < (3, 13) and instruction.starts_line is not None:
            line = instruction.starts_line
        if instruction.argval == called:
            is_next = True
        elif is_next and instruction.opname.startswith("CALL"):
            if sys.version_info < (3, 11):
                return Position(line, None, None, None)
            found = instruction.positions
            return Position(*found) if found is not None and found.lineno is not None else None
    return None


def _line_table(length: int, position: Position, first_line: int) -> bytes:
    """Return the `co_linetable` of `length` bytes of code at one position (CPython's `Objects/locations.md`)."""
    if sys.version_info < (3, 11):
        steps = [min(254, length - done) for done in range(0, length, 254)]
        deltas = [position.line - first_line, *[0] * (len(steps) - 1)]
        return bytes(byte for step, delta in zip(steps, deltas) for byte in (step, delta))
    table = bytearray()
    units, line = length // 2, first_line
    for done in range(0, units, _UNITS):
        # The long form: its code is 14.
        table.append(0x80 | 14 << 3 | min(_UNITS, units - done) - 1)
        delta, line = position.line - line, position.line
        table.extend(_variable((-delta << 1 | 1) if delta < 0 else delta << 1))
        table.extend(_variable((position.end_line or position.line) - position.line))
        for column in (position.column, position.end_column):
            table.extend(_variable(0 if column is None else column + 1))
    return bytes(table)


def _variable(value: int) -> Iterator[int]:
    """Yield a number in pieces of six bits, the lowest first."""
    while value >= 64:
        yield 0x40 | value & 0x3F
        value >>= 6
    yield value
