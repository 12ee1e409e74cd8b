"""Tracebacks through a function of ours must read as if it were not there."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradtui.system.own_frames import PACKAGE_DIRECTORY, strip_own_frames

SCRIPT = """
def call(through, function):
    return through(function)

def fail():
    raise ValueError("innermost")

def chained(through):
    try:
        call(through, fail)
    except ValueError as error:
        raise RuntimeError("cause") from error

def in_context(through):
    try:
        call(through, lambda: chained(through))
    except RuntimeError:
        call(through, lambda: {}["missing"])

def group(through):
    errors = []
    for problem in (fail, lambda: in_context(through)):
        try:
            call(through, problem)
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)
"""


def through_ours() -> Callable[[Callable[[], Any]], Any]:
    """A wrapper whose frames lie in the package, as those of the probe do: one calls the other."""
    source = "def outer(function):\n    return inner(function)\n\ndef inner(function):\n    return function()\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, PACKAGE_DIRECTORY + "probe/wrapper.py", "exec"), namespace)
    return namespace["outer"]


def traceback_of(function_name: str, through: Callable[[Callable[[], Any]], Any], strip: bool) -> str:
    namespace: dict[str, Any] = {}
    exec(compile(SCRIPT, "/home/person/train.py", "exec"), namespace)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (several kinds, compared as text)
        namespace[function_name](through)
    error = caught.value
    if strip:
        strip_own_frames(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


NAMES = ["chained", "in_context"] + (["group"] if sys.version_info >= (3, 11) else [])


@pytest.mark.parametrize("name", NAMES)
def test_only_ours_are_gone(name: str) -> None:
    with_ours = traceback_of(name, through_ours(), strip=False)
    assert with_ours.count("probe/wrapper.py") >= 2
    stripped = traceback_of(name, through_ours(), strip=True)
    assert "gradtui" not in stripped
    kept = [line for line in with_ours.splitlines() if "probe/wrapper.py" not in line]
    assert stripped.splitlines() == kept


def frames_through(*files: str) -> list[str]:
    """The files that are left of a traceback through functions in `files`, the outermost first."""
    source = "def go(rest):\n    if not rest:\n        raise KeyboardInterrupt\n    rest[0](rest[1:])\n"
    functions = []
    for file in files:
        namespace: dict[str, Any] = {}
        exec(compile(source, file, "exec"), namespace)
        functions.append(namespace["go"])
    with pytest.raises(KeyboardInterrupt) as caught:
        functions[0](functions[1:])
    strip_own_frames(caught.value)
    return [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)][1:]


HOOKS, QUEUE = PACKAGE_DIRECTORY + "probe/runtime/hook_set.py", PACKAGE_DIRECTORY + "transport/in_process.py"
WRAPPER, SCRIPT_FILE = PACKAGE_DIRECTORY + "probe/hooks/torch_hooks.py", "/home/person/train.py"
TORCH = torch.nn.modules.module.__file__
ELSEWHERE = json.__file__.replace("json", "site-packages/lightning")


def test_what_a_library_does_for_us_is_ours() -> None:
    assert frames_through(SCRIPT_FILE, WRAPPER, HOOKS, QUEUE, threading.__file__, threading.__file__) == [SCRIPT_FILE]
    assert frames_through(SCRIPT_FILE, TORCH, WRAPPER, HOOKS, TORCH) == [SCRIPT_FILE, TORCH]


def test_what_a_library_does_for_the_script_stays() -> None:
    through = [SCRIPT_FILE, TORCH, threading.__file__]
    assert frames_through(SCRIPT_FILE, WRAPPER, TORCH, threading.__file__) == through
    handler = [SCRIPT_FILE, json.__file__, TORCH]
    assert frames_through(SCRIPT_FILE, WRAPPER, HOOKS, threading.__file__, *handler) == [SCRIPT_FILE, *handler]
    assert frames_through(SCRIPT_FILE, WRAPPER, HOOKS, ELSEWHERE, TORCH) == [SCRIPT_FILE, ELSEWHERE, TORCH]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 keeps the entry of the clause itself")
def test_a_clause_that_raises_again_leaves_itself_out() -> None:
    source = (
        "def outer(function):\n"
        "    try:\n"
        "        return function()\n"
        "    except BaseException as error:\n"
        "        strip(error)\n"
        "        raise\n"
        "    finally:\n"
        "        len('')\n"
    )
    namespace: dict[str, Any] = {"strip": strip_own_frames}
    exec(compile(source, WRAPPER, "exec"), namespace)
    script: dict[str, Any] = {}
    exec(compile(SCRIPT, SCRIPT_FILE, "exec"), script)
    with pytest.raises(ValueError, match="innermost") as caught:
        script["call"](namespace["outer"], lambda: script["call"](namespace["outer"], script["fail"]))
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files == [__file__, SCRIPT_FILE, __file__, SCRIPT_FILE, SCRIPT_FILE]


def test_error_without_script_frame_has_no_traceback() -> None:
    source = "def fail():\n    raise LookupError('ours')\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, PACKAGE_DIRECTORY + "probe/wrapper.py", "exec"), namespace)
    with pytest.raises(LookupError) as caught:
        namespace["fail"]()
    error = caught.value
    strip_own_frames(error)
    assert [frame.filename for frame in traceback.extract_tb(error.__traceback__)] == [__file__]
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
    assert error.__traceback__ is None


def test_cycle_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__context__ = other, one
    strip_own_frames(one)
