"""Lends the dashboard's terminal to the script while the script reads from the keyboard, as git lends it to an editor.

A loan begins with a read, on the thread that reads, after the viewer's thread has closed the screen. It ends on the viewer's
thread, `_GRACE_S` after the last read, so that the dashboard does not flash between two questions. While a debugger steps
through the script, the next prompt may be a while away: then the loan ends after `_STEPPING_S`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from gradtui.runner.shown_output import ShownOutput

_GRACE_S = 0.5
_STEPPING_S = 10.0
_LOOPS = ("cmdloop", "_cmdloop", "interaction")
"""Methods of debuggers that read commands."""
_MAX_FRAMES = 12
"""Frames between such a method and a read."""


class TerminalLoan:
    """Whether the script has the terminal.

    Args:
        output: shows the script's output on the terminal meanwhile.
        close_screen: closes the dashboard's screen; returns whether that was possible. Called on the thread that reads.
        announce: called with True when the script gets the terminal, and with False when it returns it.
    """

    def __init__(
        self,
        output: ShownOutput,
        close_screen: Callable[[], bool],
        announce: Callable[[bool], None] = lambda _on: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.output = output
        self._close_screen, self._announce, self._clock = close_screen, announce, clock
        self._lock = threading.Lock()
        self._readers = 0
        self._is_on = False
        self._ended = 0.0
        self._debugger: Callable[[], Any] = lambda: None

    def begin(self) -> bool:
        """Get the terminal for a read. Any thread but the viewer's. Returns False if the dashboard does not give it."""
        with self._lock:
            self._readers += 1
            is_on = self._is_on
        has_begun = False
        try:
            # Not under the lock, which the viewer's thread takes.
            if is_on or self._is_closed():
                self._begin()
                has_begun = True
        finally:
            # Ctrl+C may have come meanwhile.
            if not has_begun:
                with self._lock:
                    self._readers -= 1
        return has_begun

    def _begin(self) -> None:
        with self._lock:
            if self._is_on:
                self._show(self.output.follow)
            else:
                self._is_on = True
                self._announce(True)
                self._show(self.output.begin)
            self._debugger = _debugger_that_reads()

    def follow(self) -> None:
        """Show the output so far, within a read."""
        with self._lock:
            self._show(self.output.follow)

    def end(self, typed: str) -> None:
        """End a read. `typed` is what the terminal shows of it and the log lacks."""
        with self._lock:
            self._show(self.output.append, typed)
            self._readers -= 1
            self._ended = self._clock()

    def goes_on(self) -> bool:
        """Show the output so far, and return whether the script keeps the terminal. Viewer's thread, at short intervals."""
        with self._lock:
            if self._is_on:
                self._show(self.output.follow)
            if self._readers:
                return True
            patience = _STEPPING_S if _is_stepping(self._debugger()) else _GRACE_S
            if self._is_on and self._clock() >= self._ended + patience:
                self._is_on = False
                self._announce(False)
            return self._is_on

    def _is_closed(self) -> bool:
        # No error of gradtui reaches the script, which is about to read.
        with contextlib.suppress(Exception):
            return self._close_screen()
        return False

    def _show(self, show: Callable[..., None], *arguments: str) -> None:
        with contextlib.suppress(Exception):
            show(*arguments)

    def script_ended(self) -> bool:
        """Return the terminal at once. Returns False if a thread still reads, which nothing can interrupt."""
        with self._lock:
            self._ended = float("-inf")
            return not self._readers


def _debugger_that_reads() -> Callable[[], Any]:
    """Return a weak reference to the debugger whose prompt the calling thread shows; to nothing if there is none."""
    module = sys.modules.get("bdb")
    frame = sys._getframe(1)  # noqa: SLF001 - what `inspect.currentframe` is
    for _ in range(_MAX_FRAMES):
        if module is None or frame.f_back is None:
            break
        frame = frame.f_back
        # Not of other frames: reading the variables of one that is being debugged would undo changes to them.
        if frame.f_code.co_name in _LOOPS:
            found = frame.f_locals.get("self")
            if isinstance(found, module.Bdb):
                return weakref.ref(found)
    return lambda: None


def _is_stepping(debugger: Any) -> bool:
    """Return whether a `bdb.Bdb` stops again soon: its last command was not to continue or to quit."""
    return (
        debugger is not None and not getattr(debugger, "quitting", True) and getattr(debugger, "stoplineno", -1) != -1
    )
