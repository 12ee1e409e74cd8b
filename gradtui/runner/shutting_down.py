"""What python does after the last line of a script, done while the screen is still up. Main thread.

Under plain python the threads that are not daemons are waited for and the `atexit` callbacks run as soon as the script has
ended; a person who looks at the screen the next morning must not find them waiting (source: `Py_FinalizeEx` of CPython).
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
    """Wait for the script's threads that are not daemons; those of executors end at the process's own end.

    A Ctrl+C ends the waiting, as it does in python.
    """
    owner = os.getpid()
    with contextlib.suppress(KeyboardInterrupt):
        while os.getpid() == owner and (left := _left()):
            left[0].join()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """While this lasts no signal handler of the script's runs: the script is over, and what is done here is ours and short.

    An impatient second Ctrl+C would otherwise end that in the middle. Signals without a handler in Python act as ever.
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
    # Workers of an idle executor wait for work until the interpreter itself tells them to leave.
    workers = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    here = threading.current_thread()
    return [each for each in threading.enumerate() if each is not here and not each.daemon and each not in workers]


def run_exit_callbacks() -> None:
    """Run what was registered with `atexit`, once and for all; errors are reported by python as ever."""
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        with contextlib.suppress(KeyboardInterrupt):
            run()
