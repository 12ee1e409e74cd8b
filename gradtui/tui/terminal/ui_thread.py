"""Runs a Textual app on its own thread beside the script, which has the main thread.

However the app ends, the terminal is restored and the script continues. The traceback of an error is kept in `crash`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from gradtui.system.own_thread import OwnThread
from gradtui.tui.terminal.driver import bound_driver, terminal_size
from gradtui.tui.terminal.textual_private import CrashReport, no_signal_handlers, script_keeps_stdio

if TYPE_CHECKING:
    from textual.app import App
    from textual.pilot import Pilot

    from gradtui.runner.terminal import ControllingTerminal

T = TypeVar("T")


class UiThread:
    """One app on one thread. Call the methods from the main thread unless they say otherwise."""

    def __init__(
        self,
        app_factory: Callable[[], App[Any]],
        terminal: ControllingTerminal,
        *,
        on_end: Callable[[UiThread], None] = lambda _thread: None,
    ) -> None:
        """Prepare an app that runs on `terminal`.

        Args:
            app_factory: makes the app. Called on the new thread, so that its imports do not delay the caller.
            terminal: what the app draws on; its `entered`, `left` and `restore` are called on the new thread.
            on_end: called once on the new thread, after the terminal is restored, however the app ended.
        """
        self.app: App[Any] | None = None
        self.crash: str | None = None
        """The traceback of the error that ended the app, if any. Read it only when the thread is no longer alive."""
        self._app_factory = app_factory
        self._terminal = terminal
        self._on_end = on_end
        self._ready = threading.Event()
        self._started = False
        self._leave: Callable[[], object] = lambda: None
        self._soon: Callable[[Callable[[], object]], object] = lambda _call: None
        self._owner = os.getpid()
        # This thread and those it starts are daemons: a hung screen cannot keep the process from ending. They block SIGTTOU and
        # SIGTTIN with all other signals: drawing or setting terminal modes from the background must not stop the training.
        self._thread = OwnThread(self._run, "gradtui-ui")

    @property
    def is_alive(self) -> bool:
        """Whether the app's thread is running. Any thread."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. It imports Textual and draws the first frame while the caller does other things."""
        self._thread.start()

    def wait_ready(self, timeout: float) -> bool:
        """Wait until the first frame is drawn or the app has failed, at most `timeout` seconds.

        Returns:
            Whether the app is up.
        """
        self._ready.wait(timeout)
        return self._started and self.is_alive

    def stop(self, timeout: float = 5.0) -> bool:
        """Ask the app to exit and wait for it. If it does not exit in time, restore the terminal by force.

        Safe to call twice, from `on_end`, and in a process that the script forked (where it does nothing).

        Returns:
            Whether the app exited by itself.
        """
        if os.getpid() != self._owner or threading.current_thread() is self._thread or not self._thread.ident:
            return True
        self._ready.wait(timeout)
        with contextlib.suppress(RuntimeError):  # its loop has closed in the meantime
            self._leave()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self._terminal.restore()
        self._terminal.left()
        return False

    def ask(self, question: Callable[[App[Any]], T], timeout: float) -> T | None:
        """Call `question(app)` on the app's thread, where the app does not change meanwhile. Any other thread.

        Returns:
            The answer; None if the app is not up or does not answer within `timeout` seconds.

        Raises:
            Exception: whatever `question` raises.
        """
        app, answer = self.app, Future[T]()
        if app is None or not self._started or not self.is_alive:
            return None

        def put() -> None:
            try:
                answer.set_result(question(app))
            except Exception as error:  # noqa: BLE001 (it is the asker's)
                answer.set_exception(error)

        with contextlib.suppress(RuntimeError):  # its loop has closed in the meantime
            self._soon(put)
        return answer.result() if wait([answer], timeout).done else None

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the app to end by itself. Return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        driver_class = bound_driver(self._terminal)
        try:
            self._run_app(driver_class)
        except BaseException:  # noqa: BLE001 (no error of gradtui may reach the script)
            self.crash = self.crash or traceback.format_exc()
        finally:
            driver = driver_class.current
            if driver is not None and driver.holds_terminal:
                self._terminal.restore()
                self._terminal.left()
            self._ready.set()
            with contextlib.suppress(Exception):
                self._on_end(self)

    def _run_app(self, driver_class: type[Any]) -> None:
        from gradtui.tui.terminal.fd_safe_loop import run

        with no_signal_handlers(), script_keeps_stdio():
            app = self._app_factory()
            app.driver_class = driver_class
            self.app = app
            report = CrashReport(app)
            try:
                run(self._main(app))
            finally:
                self.crash = report.text()

    async def _main(self, app: App[Any]) -> None:
        async def when_mounted(pilot: Pilot[Any]) -> None:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            self._soon = loop.call_soon_threadsafe
            self._leave = lambda: loop.call_soon_threadsafe(app.exit, context=context)
            pilot.app.call_after_refresh(self._say_ready)

        # The size applies to the first frame only; without it Textual would use the variables COLUMNS and LINES.
        await app.run_async(size=terminal_size(self._terminal.descriptor), auto_pilot=when_mounted)

    def _say_ready(self) -> None:
        self._started = True
        self._ready.set()
