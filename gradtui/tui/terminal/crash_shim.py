"""Shim for one private name of Textual: `App._exception`, the error that ended an app.

Textual prints such an error to stderr, which is the script's log while the screen is up. This shim keeps it as text instead.
"""

from __future__ import annotations

import io
import traceback
from typing import Any

from rich.console import Console
from textual.app import App


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
