"""Tell what a signal handler of the script raises from gradtui's own errors. Main thread; standard library only.

Python runs the script's handlers between any two instructions of the main thread, also within gradtui's: a scheduler's warning
while the run is held, an alarm that is to end a run. What such a handler raises belongs to the script.
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
