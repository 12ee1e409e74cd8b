"""A filter of drawn text, and shims for private names of Textual, so that an app may run off the main thread of a process
that belongs to a script.

- `textual.drivers.linux_driver.signal`: the driver sets signal handlers. That raises off the main thread, and they would apply
  to the script's process.
- `textual.app.redirect_stdout` and `redirect_stderr`: an app replaces `sys.stdout` and `sys.stderr` for the whole process, and
  at its end restores the old ones over whatever the script has put there in the meantime.
- `App._exception`: the error that ended an app, which Textual prints to stderr, the script's log while the screen is up.
"""

from __future__ import annotations

import contextlib
import io
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

import textual.app
import textual.drivers.linux_driver
from rich.console import Console
from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import ANSIToTruecolor, LineFilter

from gradtui.system.printable import without_controls

_DRIVER_MODULE: Any = textual.drivers.linux_driver
_REDIRECTS = ("redirect_stdout", "redirect_stderr")
_text = itemgetter(0)
"""Returns the text of a segment. A C function, because it runs for every line that is drawn."""


class NoControls(LineFilter):
    """Deletes control characters in dialogs and titles; panels replace them by dots, to keep columns aligned."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - as Textual calls it
        if "".join(map(_text, segments)).isprintable():
            return segments
        return [Segment(without_controls(text), style, control) for text, style, control in segments]


def needed_filters(filters: Iterable[LineFilter]) -> list[LineFilter]:
    """Return an app's filters with `NoControls` and without the one that replaces ANSI colours.

    gradtui draws no ANSI colours, and that filter takes a tenth of the time of a redraw.
    """
    return [*(line_filter for line_filter in filters if not isinstance(line_filter, ANSIToTruecolor)), NoControls()]


class _QuietSignal:
    """The `signal` module for a thread that may not set handlers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return signal.signal(number, handler)
        return signal.getsignal(number)


@contextlib.contextmanager
def no_signal_handlers() -> Iterator[None]:
    """Keep Textual's driver from setting signal handlers off the main thread while the block runs.

    Raises:
        AttributeError: this Textual's driver has no module-level name `signal`.
    """
    before = _DRIVER_MODULE.signal
    _DRIVER_MODULE.signal = _QuietSignal()
    try:
        yield
    finally:
        _DRIVER_MODULE.signal = before


@contextlib.contextmanager
def script_keeps_stdio() -> Iterator[None]:
    """Keep an app that runs on the calling thread from replacing `sys.stdout` and `sys.stderr` while the block runs.

    Raises:
        AttributeError: this Textual redirects the streams by other means.
    """
    owner = threading.get_ident()
    before = {name: getattr(textual.app, name) for name in _REDIRECTS}
    for name, redirect in before.items():
        setattr(textual.app, name, _unless_on(owner, redirect))
    try:
        yield
    finally:
        for name, redirect in before.items():
            setattr(textual.app, name, redirect)


def _unless_on(owner: int, redirect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def redirect_elsewhere(target: Any) -> Any:
        return contextlib.nullcontext(target) if threading.get_ident() == owner else redirect(target)

    return redirect_elsewhere


class CrashReport:
    """Keeps an app's crash report off stderr, and returns it as text after the app has ended."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._printed = io.StringIO()
        app.error_console = Console(file=self._printed, markup=False, highlight=False, width=120)

    def text(self) -> str | None:
        """Return the traceback, or None if the app did not crash."""
        error: BaseException | None = getattr(self._app, "_exception", None)
        if error is not None:
            return "".join(traceback.format_exception(type(error), error, error.__traceback__))
        # If a thread of Textual's fails, the app reports it without an exception of its own.
        if self._app.return_code not in (0, None) or self._printed.tell():
            return self._printed.getvalue() or f"the app ended with code {self._app.return_code}\n"
        return None
