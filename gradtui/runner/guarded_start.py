"""Begin to watch the script in the middle of its own code, so that it notices nothing of it. Script's thread.

No function here calls code of the script: `system/own_frames.py` takes all frames below out of its tracebacks.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator

from gradtui.system.no_collection import no_collection
from gradtui.system.signal_handlers import raised_by_handler

_FRAMES = 500
"""More than modules of gradtui that import each other have."""


def guarded(begin: Callable[[], None], failed: Callable[[str], None]) -> None:
    """Call `begin`, and `failed` with the error that it raises: without a probe the script still runs.

    Raises what a signal handler of the script raises meanwhile.
    """
    with _no_warnings(), no_collection(), _deeper():
        try:
            begin()
        except Exception as error:
            if raised_by_handler(error):
                raise
            failed(f"{type(error).__name__}: {error}".removesuffix(": "))


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    """Allow for the frames of imports where the script is close to its own limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Ignore all warnings: filters of the script that raise errors must not apply to gradtui's imports.

    `warnings.catch_warnings` would make Python forget which warnings of the script it has shown.
    """
    filters, ignore = warnings.filters, ("ignore", None, Warning, None, 0)
    filters.insert(0, ignore)  # type: ignore[attr-defined]  # it is a list
    try:
        yield
    finally:
        filters.remove(ignore)  # type: ignore[attr-defined]
