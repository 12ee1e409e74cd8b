"""Tell errors of the script's signal handlers from errors of gradtui. Main thread, where Python runs those handlers.

A handler runs between any two instructions, also in the middle of gradtui's hooks: a scheduler's warning while the run is
held, an alarm that is to end a run. An exception that it raises belongs to the script, wherever it surfaces.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType, MethodType


def raised_by_handler(error: BaseException) -> bool:
    """Return whether `error` comes out of a function that is currently the handler of a signal."""
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    entry = error.__traceback__ if handlers else None
    while entry is not None:
        if entry.tb_frame.f_code in handlers:
            return True
        entry = entry.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """Return the code that runs when a handler is called; None for one that is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if isinstance(handler, MethodType):
        handler = handler.__func__
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None
