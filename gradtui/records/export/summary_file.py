"""Write the summary to disk every few seconds on a daemon thread, so that the file exists however the process ends.

SIGTERM, SIGKILL and crashes end a process at once: no code can write a summary then. The file holds the last one written.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from gradtui.protocol.run_summary import RunSummary
from gradtui.records.export.summary import is_replaceable, write, write_anew
from gradtui.system.own_thread import OwnThread

RENEW_S = 5.0
"""Seconds between two writings, where one takes no time to speak of."""

_PAUSE_SHARE = 100
"""A pause is at least this many times as long as the writing before it took."""

_WAIT_S = 2.0
"""Seconds that the end of the run waits for a writing under way: a disk may hang."""


class SummaryFile:
    """The one writer of a run's summary: to `path`, what `summarise` returns now and then, and the closing summary."""

    def __init__(self, path: Path, summarise: Callable[[], RunSummary | None], *, renew_s: float = RENEW_S) -> None:
        self.path = path
        self._summarise = summarise
        self._renew_s = renew_s
        self._stop = threading.Event()
        self._replacing = threading.Lock()
        self._is_concluded = False
        """The closing summary is about to be written, or has been. Read and set while `_replacing` is held."""
        self._thread = OwnThread(self._run, "gradtui-summary")

    def start(self) -> None:
        """Begin to renew the file. What is no file (a pipe) would get one summary after the other: it gets the closing one."""
        if is_replaceable(self.path):
            self._thread.start()

    def stop(self) -> None:
        """Renew no more. A writing under way may outlast this; it never replaces the closing summary."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=_WAIT_S)

    def conclude(self, summary: RunSummary) -> None:
        """Write the closing summary. Nothing of this run replaces it. Raises OSError."""
        self._stop.set()
        with self._replacing:
            self._is_concluded = True
        write(summary, self.path)

    def _run(self) -> None:
        pause = self._renew_s
        while not self._stop.wait(pause):
            began = monotonic()
            # A full disk is reported with the closing summary, if it is still full then.
            with contextlib.suppress(Exception):
                summary = self._summarise()
                if summary is not None and not self._stop.is_set():
                    write_anew(summary, self.path, self._replace)
            pause = max(self._renew_s, _PAUSE_SHARE * (monotonic() - began))

    def _replace(self, name: Path, path: Path) -> None:
        with self._replacing:
            if self._is_concluded:
                raise FileExistsError(f"{path} is the closing summary")
            os.replace(name, path)
