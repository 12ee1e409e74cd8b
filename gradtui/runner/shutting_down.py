"""Do what python does after the last line of a script, while the screen is still up. Main thread.

Plain python waits for non-daemon threads and runs the `atexit` callbacks as soon as the script has ended. They must not wait
until the user closes the screen, which may be the next morning (source: `Py_FinalizeEx` of CPython).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator


def wait_for_threads() -> None:
    """Wait for the script's non-daemon threads. The threads of executors end when the process ends.

    A Ctrl+C ends the waiting, as it does in python.
    """
    owner = os.getpid()
    with contextlib.suppress(KeyboardInterrupt):
        while os.getpid() == owner and (left := _left()):
            left[0].join()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run no signal handler of the script within this context: the script has ended, and the code here is gradtui's and short.

    A second Ctrl+C would otherwise interrupt it. Signals without a handler in Python act as usual.
    """
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda _number, _frame: None)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _left() -> list[threading.Thread]:
    # Workers of an idle executor wait for work until the interpreter shuts down.
    workers = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    here = threading.current_thread()
    return [each for each in threading.enumerate() if each is not here and not each.daemon and each not in workers]


def run_exit_callbacks() -> None:
    """Run the `atexit` callbacks, which then do not run again. Python reports their errors as usual."""
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        with contextlib.suppress(KeyboardInterrupt):
            run()
