"""Remove gradtui's frames from the script's tracebacks, and hide them from code that counts stack frames.

`warnings.warn(stacklevel=n)` and `logging` (Python 3.11 and later) name the caller a number of frames up. CPython does not
count a frame whose file name contains both "importlib" and "_bootstrap" (`is_internal_frame` in `_warnings.c`,
`_is_internal_frame` in `warnings.py` and `logging`; Python 3.10 to 3.14). *Hiding* a function gives it such a file name; it is
done to functions of gradtui that call the script's code. Any thread; standard library only.
"""

from __future__ import annotations

import _imp
import builtins
import functools
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

from gradtui.protocol.script_lines import ScriptLine

F = TypeVar("F", bound=Callable[..., Any])
Entry = tuple[str, int, str]
"""The file, the line and the function of an active frame, or of an entry of a traceback."""

PACKAGE_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Directory of the gradtui package with a trailing separator: the prefix of each file of gradtui."""

_DEAD_ENDS = frozenset(
    PACKAGE_DIRECTORY + os.path.join(*parts)
    for parts in (
        ("probe", "runtime", "hook_set.py"),
        ("transport", "in_process.py"),
        ("runner", "guarded_start.py"),
    )
)
"""Files whose functions never call back into the script: every library call below them is gradtui's own."""

_HIDDEN = os.path.join(PACKAGE_DIRECTORY, "importlib_bootstrap", "")
"""The directory in the file names of hidden functions. It does not exist."""

_SOURCE_LENGTH = 200
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(f"{os.sep}{kind}-packages{os.sep}" for kind in ("site", "dist"))
_EXCEPTION_GROUP: type | None = getattr(builtins, "BaseExceptionGroup", None)  # Python 3.11 and later


def hide(function: F) -> F:
    """Hide all frames of this function by replacing its code object. Returns the same function."""
    function.__code__ = _hidden(function.__code__)
    return function


def is_hidden(code: CodeType) -> bool:
    """Return whether frames of this code are hidden."""
    return code.co_filename.startswith(_HIDDEN)


def hide_callers(*, keep_runpy: bool) -> None:
    """Hide the active frames from the caller down, so that a script sees no frames below its own first one.

    These are the frames of gradtui, of the program that started gradtui and, unless the script itself runs as under
    `python -m`, of `runpy`. Other frames stay as they are.
    """
    rename = getattr(_imp, "_fix_co_filename", None)
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
    while rename is not None and frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE_DIRECTORY) or (frame.f_back is None and code.co_name == "<module>"):
            rename(code, _hidden_name(code.co_filename))
        elif not keep_runpy and frame.f_globals.get("__name__") == "runpy":
            function = frame.f_globals.get(code.co_name)
            if getattr(function, "__code__", None) is code:
                # The script may use runpy as well, so the function gets a copy of the code with the real file name.
                function.__code__ = code.replace()  # type: ignore[union-attr]  # it has one
                rename(code, _hidden_name(code.co_filename))
        frame = frame.f_back


def _hidden_name(file: str) -> str:
    if file.startswith(_HIDDEN):
        return file
    return _HIDDEN + (file[len(PACKAGE_DIRECTORY) :] if file.startswith(PACKAGE_DIRECTORY) else os.path.basename(file))


@functools.cache
def _hidden(code: CodeType) -> CodeType:
    """Return the hidden copy of the code. Each code has one copy: dynamo records facts per code object, which then hold for all
    functions made from it."""
    return code.replace(co_filename=_hidden_name(code.co_filename))


def script_line() -> ScriptLine | None:
    """Return the innermost active line of the script with its source; None if no frame is the script's."""
    found = script_entry()
    return line_at(*found) if found is not None else None


def script_entry() -> Entry | None:
    """Return the innermost active frame of the script; None if no frame is the script's."""
    entries: list[Entry] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
    while frame is not None:
        entries.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return innermost(entries[::-1])


def innermost(entries: Sequence[Entry]) -> Entry | None:
    """Return the last entry that is the script's: not of gradtui, torch, the standard library or generated code.

    Entries of installed packages count only if there are no others.
    """
    known = [each for each in entries if not (each[0].startswith((PACKAGE_DIRECTORY, "<")) or _is_library(each[0]))]
    own = [each for each in known if not any(part in each[0] for part in _PACKAGES)]
    return next(reversed(own or known), None)


def is_of_script(file: str) -> bool:
    """Return whether this is a file of the script: not of gradtui, torch, the standard library or an installed package."""
    is_installed = any(part in file for part in _PACKAGES)
    return not (file.startswith((PACKAGE_DIRECTORY, "<")) or is_installed or _is_library(file))


def line_at(file: str, line: int, function: str = "") -> ScriptLine:
    """Return a line of a file with its source, as far as that can be read."""
    source, here = "", ""
    with suppress(Exception):
        source = linecache.getline(file, line).strip()[:_SOURCE_LENGTH]
    with suppress(OSError):
        here = os.path.join(os.getcwd(), "")
    shown = file[len(here) :] if here and file.startswith(here) else file
    return ScriptLine(shown, line, source, "" if function == "<module>" else function, here if shown != file else "")


def strip_own_frames(error: BaseException) -> None:
    """Remove the frames of gradtui, and of libraries that gradtui calls, from the traceback of `error`, in place.

    The same happens to each exception reachable through `__cause__`, `__context__` or an exception group, so that the printed
    traceback is that of plain python.

    If the caller is an `except` clause that ends with a bare `raise`, the frame of that clause is removed too: CPython 3.11 and
    later raise again with the current `__traceback__` (3.10 begins with the clause's own entry, which stays).
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_own(current.__traceback__)
        waiting += [current.__cause__, current.__context__]
        if _EXCEPTION_GROUP is not None and isinstance(current, _EXCEPTION_GROUP):
            waiting += current.exceptions  # type: ignore[attr-defined]  # a group, on Python 3.11


def _without_own(first: TracebackType | None) -> TracebackType | None:
    """Relink a chain of traceback entries so that only the foreign ones remain."""
    kept = list(_foreign(first))
    for entry, following in zip(kept, [*kept[1:], None]):
        entry.tb_next = following
    head = kept[0] if kept else None
    if first is not None and first is not head:
        first.tb_next = head
    return head


def _foreign(entry: TracebackType | None) -> Iterator[TracebackType]:
    for_us = False
    while entry is not None:
        file = entry.tb_frame.f_code.co_filename
        following = entry.tb_next
        if file.startswith(PACKAGE_DIRECTORY):
            for_us = for_us or file in _DEAD_ENDS
        elif not (for_us and _is_library(file)):
            # A signal handler of the script on top of a function of gradtui: the calls below it are the script's.
            for_us = False
            yield entry
        entry = following


def _is_library(file: str) -> bool:
    """Return whether this is a file of torch or of the standard library, or a module that is part of Python itself."""
    if file.startswith("<frozen "):
        return True
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and file.startswith(os.path.dirname(torch) + os.sep):
        return True
    return file.startswith(_STANDARD_LIBRARY) and not any(part in file for part in _PACKAGES)
