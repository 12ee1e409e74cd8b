"""What a traceback of plain python says of a module's call, which runs without that frame here.

`nn.Module.__call__` is `_wrapped_call_impl`, and all it does is to call `_call_impl`. Our wrapper does that itself, so that
deep models meet Python's recursion limit no sooner; in tracebacks the entry of the one it stands for is put in its place.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import nn

from gradtui.own_frames import stands_before
from gradtui.probe.torch_private import is_plain_module_call


class _ExpectedError(Exception):
    pass


class _Uncallable:
    """As much of a module as `_wrapped_call_impl` asks for."""

    _compiled_call_impl = None

    def _call_impl(self) -> None:
        raise _ExpectedError


def keep_in_tracebacks(original: Callable[..., Any]) -> None:
    """Have `original`, torch's own call of a module, named in tracebacks before the `_call_impl` that it calls."""
    entry = _entry_of(original) if is_plain_module_call(original) else None
    if entry is not None:
        stands_before(nn.Module._call_impl.__code__, entry)  # noqa: SLF001 - as `module_calls.py`


def _entry_of(original: Callable[..., Any]) -> TracebackType | None:
    """An entry of a call of `original` that failed in what it calls. Its frame remembers its callers: it is to have none."""
    found: list[TracebackType | None] = []
    is_done = allocate_lock()

    def fail() -> None:
        try:
            original(_Uncallable())
        except Exception:  # noqa: BLE001 - a torch whose call asks for more: its entry is left out
            _, error, entry = sys.exc_info()
            following = entry.tb_next if isinstance(error, _ExpectedError) and entry is not None else None
            found.append(following)
        finally:
            is_done.release()

    is_done.acquire()
    start_new_thread(fail, ())
    is_done.acquire()
    return found[0] if found else None
