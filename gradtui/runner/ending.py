"""End a script's run like plain python: with the same report, and the same exit code or signal.

Main thread. Semantics are those of CPython's `PyErr_PrintEx` and `Py_RunMain`: an integer in SystemExit is the exit
code, any other value but None is printed and gives 1, an uncaught KeyboardInterrupt ends the process by SIGINT after
normal shutdown, and everything else goes to `sys.excepthook` and gives 1.

Plain python waits for non-daemon threads and runs the `atexit` callbacks as soon as the script has ended (`Py_FinalizeEx`).
Under the screen gradtui does so, since they must not wait until the user closes the screen, which may be the next morning.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn

from gradtui.dataclass import dataclass
from gradtui.protocol.script_lines import Uncaught
from gradtui.runner.uncaught import uncaught
from gradtui.system.cursor_line import STDERR_LINE
from gradtui.system.no_collection import end_exemption
from gradtui.system.own_frames import strip_own_frames

_MAX_LINE_S = 1.0
"""Seconds that a report waits until a line of gradtui is written."""


@dataclass(frozen=True)
class Outcome:
    """How the script ended.

    Attributes:
        exit_code: the argument for `sys.exit`; 130 if `signal` is SIGINT.
        error: the traceback as text, without gradtui's frames; None if there was no uncaught exception.
        signal: SIGINT if an uncaught KeyboardInterrupt must end the process by that signal.
        forked: True in a process that the script itself forked: exit at once, because the screen belongs to another process.
        uncaught: what the script raised, SystemExit too unless its code is zero or gradtui has raised it.
    """

    exit_code: int
    error: str | None = None
    signal: int | None = None
    forked: bool = False
    uncaught: Uncaught | None = None


def conclude(error: BaseException | None, *, forked: bool = False) -> Outcome:
    """Report an uncaught exception on stderr as python does, and return how the process has to end."""
    if error is None:
        return Outcome(exit_code=0, forked=forked)
    strip_own_frames(error)
    described = uncaught(error)
    if isinstance(error, SystemExit):
        code = _exit_code(error)
        # gradtui has said why it ends the script. Its own exit has no traceback, or is raised by a hook within the script.
        is_own = error.__traceback__ is None or type(error).__module__.startswith("gradtui.")
        return Outcome(code, forked=forked, uncaught=described if code and not is_own else None)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    exit_code = _report(error)
    if type(error) is KeyboardInterrupt:
        return Outcome(128 + signal.SIGINT, error=text, signal=signal.SIGINT, forked=forked, uncaught=described)
    return Outcome(exit_code, error=text, forked=forked, uncaught=described)


def finish(outcome: Outcome) -> NoReturn:
    """End the process as the script's outcome requires. This is the very last call on the main thread.

    Raises:
        KeyboardInterrupt: for an interrupted script. Its report is already written, so this exception prints nothing. When it
            reaches the top, python shuts down normally (atexit, threads) and ends itself by SIGINT: a shell sees 130.
        SystemExit: with the exit code, otherwise.
    """
    end_exemption()
    if outcome.signal != signal.SIGINT:
        raise SystemExit(outcome.exit_code)
    interruption = KeyboardInterrupt()
    hook = sys.excepthook

    def report_others(kind: type[BaseException], error: BaseException, entries: TracebackType | None) -> None:
        if error is not interruption:
            hook(kind, error, entries)

    sys.excepthook = report_others
    raise interruption


def signal_name(number: int) -> str:
    """Return the name of a signal; `signal` for one without a name, such as a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal"


def _exit_code(error: SystemExit) -> int:
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    _write(f"{code}\n")
    return 1


def _report(error: BaseException) -> int:
    """Call `sys.excepthook`, which the script may have replaced. Returns the exit code, which such a hook may set."""
    # Post-mortem tools and atexit callbacks read these, as they do under plain python.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        _write("sys.excepthook is missing\n")
        hook = sys.__excepthook__
    # The child of a fork has the lock as its parent's threads left it.
    is_alone = STDERR_LINE.report_lock.acquire(timeout=_MAX_LINE_S)
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return _exit_code(leaving)
    except BaseException as second:  # noqa: BLE001 (python catches all of them here)
        strip_own_frames(second)
        _write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(second), second, second.__traceback__)
        _write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        if is_alone:
            STDERR_LINE.report_lock.release()
    return 1


def _write(text: str) -> None:
    """Write to stderr; to its descriptor if the script removed the stream, as python does."""
    try:
        if sys.stderr is None:
            os.write(2, text.encode(errors="backslashreplace"))
        else:
            sys.stderr.write(text)
            sys.stderr.flush()
    except Exception:  # noqa: BLE001 (closed, or the script's own broken object: python is silent here too)
        return


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
