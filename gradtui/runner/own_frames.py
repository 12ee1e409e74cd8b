"""Keeps our own frames out of the tracebacks that a script's author reads. Any thread."""

from __future__ import annotations

import builtins
import os
from types import TracebackType

PACKAGE_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where the gradtui package lies, with a closing separator: the prefix of each of our files."""

_EXCEPTION_GROUP: type | None = getattr(builtins, "BaseExceptionGroup", None)  # Python 3.11 and later


def strip_own_frames(error: BaseException) -> None:
    """Take every frame of a gradtui file out of the traceback of `error`, in place.

    The same is done to each exception that is reached through `__cause__`, `__context__` or an exception group, so
    that what is printed is what plain python prints.
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
            waiting += current.exceptions  # type: ignore[attr-defined]


def _without_own(first: TracebackType | None) -> TracebackType | None:
    """Relink a chain of traceback entries so that only those of other files remain."""
    kept: list[TracebackType] = []
    entry = first
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY):
            kept.append(entry)
        entry = entry.tb_next
    for entry, following in zip(kept, [*kept[1:], None]):
        entry.tb_next = following
    return kept[0] if kept else None
