"""The wrapper of a module's call looks like torch's own function: the same file, line, columns, name and module."""

from __future__ import annotations

import builtins
import dis
import linecache
import sys
from types import CodeType, FunctionType
from typing import Any

import pytest
from helpers.watched import watched
from torch import nn

from gradtui.probe.hooks.traceback_entry import call_position, stands_for


def positions(code: CodeType) -> set[Any]:
    """All positions of a code object's instructions, by CPython's own decoder."""
    if sys.version_info >= (3, 11):
        return set(code.co_positions())
    return {line for _, _, line in code.co_lines()}


@pytest.mark.parametrize("lines", [1, 7, 200])
def test_every_instruction_stands_where_the_call_does(lines: int) -> None:
    def original(self: Any) -> None:
        if self.other:
            self.meant(
                1, key=2
            )  # fmt: skip

    source = "def ours(self):\n" + "    self = self and (1, 2, self)\n" * lines + "    return self\n"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function = stands_for(namespace["ours"], original, "meant")
    assert function is not None
    first = original.__code__.co_firstlineno
    expected = (first + 2, first + 4, 12, 13) if sys.version_info >= (3, 11) else first + 2
    assert positions(function.__code__) == {expected}
    assert function.__code__.co_firstlineno == first
    assert function.__code__.co_filename == __file__
    assert function.__globals__ is globals()
    assert list(dis.get_instructions(function))


def test_call_of_module_is_torch_s_own_line() -> None:
    original = nn.Module.__call__
    assert isinstance(original, FunctionType)
    with watched():
        ours: Any = nn.Module.__call__
        assert ours is not original
        code = ours.__code__
    assert (code.co_filename, code.co_name) == (original.__code__.co_filename, "_wrapped_call_impl")
    (line,) = {line for _, _, line in code.co_lines()}
    assert linecache.getline(code.co_filename, line).strip() == "return self._call_impl(*args, **kwargs)"
    assert ours.__globals__["__name__"] == "torch.nn.modules.module"
    used = {each.argval for each in dis.get_instructions(ours) if each.opname == "LOAD_GLOBAL"}
    assert used <= set(vars(builtins)) - set(ours.__globals__)


def test_a_function_without_that_call_is_not_imitated() -> None:
    def other(self: Any) -> Any:
        return self.something_new()

    assert call_position(other, "_call_impl") is None
    assert stands_for(other, other, "_call_impl") is None
