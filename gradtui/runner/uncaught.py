"""Describe the exception that ends a script: its class, its text, and the script's own line. Any thread; standard library only.

The exception, its class and its text are the script's: none of them can make this fail, and what is kept of them is bounded.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from gradtui.protocol.script_lines import ScriptLine, Uncaught
from gradtui.system.own_frames import innermost, line_at
from gradtui.system.printable import without_sequences

_LINES, _CHARACTERS = 12, 400
"""Of the text: lines that are kept, and characters of each."""
_MEMBERS = 3
_ENTRY = re.compile(r' *File "([^"\n]+)", line (\d+)(?:, in (.+))?$')
_TRACEBACK = "Traceback (most recent call last):"


def uncaught(error: BaseException) -> Uncaught:
    """Describe an exception whose traceback has no frames of gradtui any more."""
    text = [line for part in _texts(error) for line in part.splitlines()]
    outer, nested = _without_tracebacks(text)
    kept = [short for each in outer if (short := _shortened(each))]
    line: ScriptLine | None = None
    with suppress(Exception):
        line = nested or _line_of(error)
    return Uncaught(_type_name(error), tuple(kept[:_LINES]), max(0, len(kept) - _LINES), line, _cause(error))


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the text of an exception, its notes, and the first lines of the members of a group."""
    # Python prints the place of a syntax error apart from its text.
    message = _attribute(error, "msg") if issubclass(type(error), SyntaxError) else None
    yield message if isinstance(message, str) else _text(error)
    notes = _attribute(error, "__notes__")
    for note in islice(notes, _LINES) if isinstance(notes, (list, tuple)) else ():
        yield _text(note)
    members = _attribute(error, "exceptions")
    for member in islice(members, _MEMBERS) if isinstance(members, tuple) else ():
        yield _headline(member)


def _attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of an exception, whose class may compute it in code of the script's; None if there is none."""
    with suppress(Exception):
        return getattr(error, name, None)
    return None


def _text(value: object) -> str:
    try:
        return without_sequences(str(value))
    except BaseException:  # noqa: BLE001 - as python does when it prints an exception
        return "<exception str() failed>"


def _type_name(error: object) -> str:
    with suppress(Exception):
        kind = type(error)
        module = kind.__module__
        return kind.__qualname__ if module in ("__main__", "builtins") else f"{module}.{kind.__qualname__}"
    return "an exception"


def _headline(error: object) -> str:
    first = next((line for each in _text(error).splitlines() if (line := _shortened(each))), "")
    return f"{_type_name(error)}: {first}" if first else _type_name(error)


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1]}…"


def _cause(error: BaseException) -> str:
    cause = _attribute(error, "__cause__")
    if cause is None and not _attribute(error, "__suppress_context__"):
        cause = _attribute(error, "__context__")
    return _headline(cause) if cause is not None else ""


def _line_of(error: BaseException) -> ScriptLine | None:
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and isinstance(error.lineno, int):
        return line_at(error.filename, error.lineno)
    entries = [
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if number is not None
    ]
    return line_at(*found) if (found := innermost(entries)) is not None else None


def _without_tracebacks(text: Sequence[str]) -> tuple[list[str], ScriptLine | None]:
    """Return lines without the tracebacks of other processes in them, and the innermost line of the script in these.

    Errors of data loaders' workers and of child processes have such a traceback in their text.
    """
    if not any(line.endswith(_TRACEBACK) for line in text):
        return [*text], None
    outer, entries, is_within = [], [], False
    for line in text:
        entry = _ENTRY.match(line)
        if entry is not None:
            entries.append((entry[1], int(entry[2]), entry[3] or ""))
        is_within = line.endswith(_TRACEBACK) or entry is not None or (is_within and line.startswith("    "))
        if not is_within:
            outer.append(line)
    found = innermost(entries)
    return outer, line_at(*found) if found is not None else None
