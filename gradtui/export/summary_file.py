"""The summary on disk while the run goes on, so that one is there whatever ends the process. A daemon thread of its own.

SIGTERM, SIGKILL or a crash end a process at once, as they must: nothing runs then that could still write. What is left is
what was written last.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from gradtui.export.summary import write

RENEW_S = 5.0
"""Seconds between two writings, where one takes no time to speak of."""

_PAUSE_SHARE = 100
"""A pause is at least this many times as long as the writing before it took."""


class SummaryFile:
    """Writes to `path` what `summarise` returns, now and then; nothing where that is None."""

    def __init__(self, path: Path, summarise: Callable[[], dict[str, Any] | None], *, renew_s: float = RENEW_S) -> None:
        self._path = path
        self._summarise = summarise
        self._renew_s = renew_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gradtui-summary", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more, so that the closing summary is the last; a disk that hangs is not waited for long."""
        self._stop.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        pause = self._renew_s
        while not self._stop.wait(pause):
            began = monotonic()
            # A full disk is reported with the closing summary, if it is still full then.
            with contextlib.suppress(Exception):
                summary = self._summarise()
                if summary is not None and not self._stop.is_set():
                    write(summary, self._path)
            pause = max(self._renew_s, _PAUSE_SHARE * (monotonic() - began))
