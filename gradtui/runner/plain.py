"""Report on a run without a screen: a progress line every few seconds and a closing summary, both on stderr.

The reporter drains the events on its own daemon thread and writes to a duplicate of fd 2, so that a script that replaces or
closes `sys.stderr` neither loses nor garbles a line of gradtui.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TypeVar

from gradtui.protocol.events import Event
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.state.run_state import LogEntry, RunState
from gradtui.run.text.notices import Notice, notice_of
from gradtui.run.text.report import progress_line
from gradtui.run.viewing import of_run, view
from gradtui.system.cursor_line import STDERR_LINE
from gradtui.system.descriptors import duplicate_aside
from gradtui.system.own_memory import OWN
from gradtui.system.own_thread import OwnThread
from gradtui.system.printable import printable
from gradtui.transport.in_process import EventQueue

PROGRESS_S = 5.0
"""Seconds between two progress lines."""

DRAIN_S = 0.25
"""Seconds between two looks for new events."""

_REPORTED = {
    "applied", "rejected", "receipt", "verified", "moved", "not finite", "finding", "growth", "spike", "loss spike",
    "out of memory", "probe", "checkpoint", "ranks", "keeping", "returns", "try",
}  # fmt: skip
"""The kinds of log entries that are written."""

T = TypeVar("T")


def reported(log: Iterable[LogEntry]) -> Iterator[str]:
    """Yield the lines that the reporter writes for entries of the log."""
    for entry in log:
        if entry.kind in _REPORTED:
            yield f"step {entry.step:,}: {entry.text}"


class PlainReporter:
    """Keeps a `RunState` from an event source and reports on it."""

    def __init__(
        self,
        source: EventQueue,
        findings: FindingTracker | None = None,
        *,
        silent: bool = False,
        drain_s: float = DRAIN_S,
        rank: int | None = None,
        notify: Callable[[RunState, Notice], None] | None = None,
    ) -> None:
        """Report on the events of `source`. A `silent` reporter writes only the text passed to `say` and `write`.

        It drains the events every `drain_s` seconds. Lines name the `rank`, where other ranks write to the same terminal.
        `notify` is called for what a user who looks elsewhere must know.
        """
        self._speaker = "gradtui" if rank is None else f"gradtui: rank {rank}"
        self._drain_s = drain_s
        self.state = RunState()
        self._findings = findings if findings is not None else FindingTracker()
        self._source = source
        self._notify = notify
        self._silent = silent
        self._stop = threading.Event()
        self._thread = OwnThread(self._run, "gradtui-plain")
        self._owner = os.getpid()
        # A notebook may request a summary while the thread is draining.
        self._lock = threading.RLock()
        self._seen = 0
        """Number of log entries that are written already, or that this reporter does not write."""
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = duplicate_aside(2)

    def start(self) -> None:
        """Start to drain events and report."""
        self._thread.start()

    def finish(self) -> RunState:
        """Stop, apply the remaining events, and return the final state."""
        self._stop.set()
        if self._thread.ident is not None and os.getpid() == self._owner:
            self._thread.join()
        self.drain()
        self._findings.finish(self.state)
        if self._thread.ident is not None and not self._silent:
            self._report_log()
        return self.state

    def speak_into(self, file: Path) -> None:
        """Append to this file from now on."""
        # If the file cannot be opened, there is nowhere left to report it.
        with contextlib.suppress(OSError):
            opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._descriptor = duplicate_aside(opened)
            os.close(opened)

    def say(self, text: str) -> None:
        """Write one line of gradtui to stderr."""
        self.write(f"{self._speaker}: {printable(text)}\n")

    def write(self, text: str) -> None:
        """Write whole lines without control characters to stderr, below a line that the script has not ended."""
        if self._descriptor is None:
            return
        text = STDERR_LINE.take_fresh() + text
        with contextlib.suppress(OSError):
            try:
                self._write(text.encode(errors="replace"))
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                # The script has closed gradtui's descriptor, as `os.closerange` does with all.
                self._descriptor = duplicate_aside(2)
                self._write(text.encode(errors="replace"))

    def _write(self, text: bytes) -> None:
        # A pipe may take less than the whole text.
        while text and self._descriptor is not None:
            text = text[os.write(self._descriptor, text) :]

    def _run(self) -> None:
        reported = monotonic()
        self._seen = self.state.log_count
        while not self._stop.wait(self._drain_s):
            OWN.update()
            self.drain()
            # A traceback stays in one piece.
            if self._silent or not STDERR_LINE.report_lock.acquire(blocking=False):
                continue
            try:
                self._report_log()
                if monotonic() - reported >= PROGRESS_S:
                    reported = monotonic()
                    self.say(progress_line(self.state))
            finally:
                STDERR_LINE.report_lock.release()

    def _report_log(self) -> None:
        """Write the log's entries that have not been written yet."""
        log = self.state.log
        for line in reported(log[max(0, len(log) - (self.state.log_count - self._seen)) :]):
            self.say(line)
        self._seen = self.state.log_count

    def drain(self) -> None:
        """Apply all waiting events to the state."""
        with self._lock:
            seen: list[Event] = []
            for event in self._source.drain(100_000):
                seen += view(self.state, self._findings, event, "report")
                notice = notice_of(self.state, of_run(self.state, event)) if self._notify is not None else None
                if notice is not None and self._notify is not None:
                    self._notify(self.state, notice)
            self._source.seen(seen)

    def look(self, at: Callable[[RunState], T]) -> T:
        """Apply `at` to the state with all events received so far and return the result. The state does not change meanwhile.
        Any thread."""
        with self._lock:
            self.drain()
            return at(self.state)
