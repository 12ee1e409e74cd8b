"""The live table of a watch in a notebook: displayed once, updated while training runs in a cell.

A thread of its own draws the table at most twice a second, and less often if that takes more than a fiftieth of the time. Only
IPython calls this module, so without IPython nothing of it is imported.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable
from time import thread_time
from typing import Any

from gradtui.run.state.run_state import RunState
from gradtui.run.text.html import run_html
from gradtui.run.text.report import progress_line
from gradtui.system.own_thread import OwnThread

_PERIOD_S = 0.5
_MIN_RATIO = 50
"""The thread waits at least this many times as long as the last table took."""


class LiveTable:
    """Displays the state of a run.

    Args:
        bundle: returns the table by MIME type, None if the state is not available. Any thread may call it.
        catch_up: emits what the probe knows so far; called on the thread that runs the cells.
    """

    def __init__(self, bundle: Callable[[], dict[str, str] | None], catch_up: Callable[[], None]) -> None:
        self._bundle, self._catch_up = bundle, catch_up
        self._id = uuid.uuid4().hex
        self._shell: Any = None
        """The IPython of a kernel; None before the first display, and in a terminal."""
        self._shown: dict[str, str] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._owner = os.getpid()

    def display(self, *, live: bool) -> None:
        """Display the table as an output of the running cell. If `live`, update it from now on, where a kernel can."""
        from IPython import get_ipython

        self._catch_up()
        self._shown = self._bundle()
        if self._shown is None:
            return
        self._publish(self._shown, update=False)
        shell = get_ipython()
        # A terminal cannot replace what it has printed.
        if live and self._shell is None and getattr(shell, "kernel", None) is not None:
            self._shell = shell
            shell.events.register("post_run_cell", self._after_cell)
            OwnThread(self._run, "gradtui-notebook").start()

    def close(self) -> None:
        """Display the last state and update no more."""
        if self._shell is None:
            return
        self._stop.set()
        self._update()
        with contextlib.suppress(ValueError):
            self._shell.events.unregister("post_run_cell", self._after_cell)

    def _run(self) -> None:
        pause = _PERIOD_S
        while not self._stop.wait(pause):
            began = thread_time()
            self._update()
            pause = max(_PERIOD_S, _MIN_RATIO * (thread_time() - began))

    def _after_cell(self, result: object) -> None:  # noqa: ARG002 - IPython passes it
        """Display the state at the end of a cell, with the newest steps."""
        if os.getpid() == self._owner:
            with contextlib.suppress(Exception):
                self._catch_up()
            self._update()

    def _update(self) -> None:
        # A kernel that shuts down cannot display any more.
        with contextlib.suppress(Exception), self._lock:
            bundle = self._bundle()
            if bundle is not None and bundle != self._shown:
                self._shown = bundle
                self._publish(bundle, update=True)

    def _publish(self, bundle: dict[str, str], *, update: bool) -> None:
        from IPython.display import publish_display_data

        publish_display_data(bundle, transient={"display_id": self._id}, update=update)


def bundle(state: RunState, *, is_over: bool) -> dict[str, str]:
    """Return the state of a run by MIME type, as IPython displays it."""
    return {"text/html": run_html(state, is_over=is_over), "text/plain": progress_line(state)}
