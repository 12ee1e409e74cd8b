"""Redirect everything that the process writes to a log file while the screen uses the terminal.

fds 1 and 2 point to the file, so that C code, subprocesses and worker processes are captured as well. fd 0 is /dev/null, so
that a reader gets an end of file instead of competing with the screen for keys. It is a file, not a pipe: nothing can deadlock
on a reader in this process, and the output survives a crash. `lend_terminal` puts the terminal on the three for a read
(`script_input.py`); what Python writes meanwhile goes to the log.

`start` runs on the main thread before the script; the other methods on any thread.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gradtui.runner.standard_streams import flush_python, keep_output, line_buffer
from gradtui.runner.terminal import terminal_width
from gradtui.system.cursor_line import STDERR_LINE
from gradtui.system.descriptors import duplicate_aside, move_aside
from gradtui.system.run_files import lock_while_open
from gradtui.transport.log_tail import clip, last_lines

T = TypeVar("T")

INPUT_REFUSED = (
    "gradtui: the script read stdin and got the end of the file: the dashboard could not lend the keyboard "
    "(child processes never get it); use --plain\n"
)
"""The message to the user, in the log at once and again at the end."""

_NOTICE = "gradtui: the screen is closed; output from before is in {place}\n"


class OutputCapture:
    """Redirects the script's output to a log while the screen is up, and back to the terminal afterwards."""

    def __init__(
        self,
        log: Path,
        *,
        columns: int | None = None,
        announce: Callable[[str | None], None] = lambda _log: None,
        on_trouble: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """Prepare a capture that appends to the file `log`.

        Args:
            log: the file; its directory must exist.
            columns: width for tables and progress bars of the script: most read COLUMNS if the output is no terminal (newer
                versions of tqdm draw a short bar there instead). None leaves the environment unchanged.
            announce: called with the log's path when output starts to go there, and with None when it goes to the terminal
            again. on_trouble: called once with the reason when output cannot be written to the log; on the thread that prints.
        """
        self.log = log
        self.start_offset = 0
        """Size of the file in bytes before this run."""
        self.place = str(log)
        """Where the output is, in words."""
        self.active = False
        self.lost_bytes = 0
        """Number of bytes that could not be written to the log."""
        self.trouble: str | None = None
        """Why they could not be written."""
        self._on_trouble = on_trouble
        self._columns = str(max(columns, 1)) if columns is not None else None
        self._announce = announce
        self._saved: dict[int, int | None] = {}
        self._columns_before: str | None = None
        self._log_descriptor = -1
        self._log_status: os.stat_result | None = None
        self._was_refused = mmap.mmap(-1, 1)
        """One byte, which child processes share: whether one of them has got the end of the file for stdin."""
        self._null = -1
        self._lent: list[int] = []
        """The descriptors that are the terminal for now."""
        self._borrowers = 0
        self._owner = os.getpid()
        self._lock = threading.Lock()

    @property
    def asked_for_input(self) -> bool:
        """Whether the script, or a child process, has read stdin and got the end of the file."""
        return bool(self._was_refused[0])

    def start(self) -> None:
        """Redirect fds 0, 1 and 2.

        Raises:
            OSError: the log cannot be opened. Nothing has changed then.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        opened = os.open(self.log, flags, 0o600)
        self._log_descriptor = duplicate_aside(opened)
        os.close(opened)
        lock_while_open(self._log_descriptor)
        self._log_status = os.fstat(self._log_descriptor)
        self.start_offset = self._log_status.st_size
        flush_python()
        for descriptor in (0, 1, 2):
            self._saved[descriptor] = None
            # The process may have been started with the descriptor closed.
            with contextlib.suppress(OSError):
                self._saved[descriptor] = duplicate_aside(descriptor)
        self._null = move_aside(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        os.dup2(self._null, 0)
        os.dup2(self._log_descriptor, 1)
        os.dup2(self._log_descriptor, 2)
        self.active = True
        self._owner = os.getpid()
        keep_output(self._lose, lambda descriptor: self._log_descriptor if descriptor in self._lent else None)
        line_buffer()
        if self._columns is not None:
            self._columns_before = os.environ.get("COLUMNS")
            os.environ["COLUMNS"] = self._columns
        self._announce(str(self.log))

    def stop(self, *, notice: bool = True, tail: int | Sequence[str] = 0, shown: int = 0) -> None:
        """Restore fds 0, 1 and 2, so that output continues on the terminal. A second call does nothing.

        A descriptor that the script has meanwhile redirected stays unchanged, and so does everything in a process that the
        script forked.

        Args:
            notice: write to stderr where the output so far is.
            tail: number of the log's last lines to repeat on stderr, to show where the script is; or the lines themselves.
            shown: bytes of the log that are on the terminal already.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if not self.active:
                return
            self.active = False
            flush_python()
            for descriptor in (1, 2):
                if self._leads_to_log(descriptor) or descriptor in self._lent:
                    self._put_back(descriptor)
            self._put_back(0)
            is_asking, self._lent = bool(self._lent), []
            if threading.current_thread() is threading.main_thread():
                self._restore_columns()
        self._announce(None)
        text = _NOTICE.format(place=self.place) if notice else ""
        if is_asking and notice:  # behind the question of a thread
            text = f"\n{text}"
        width = terminal_width()
        lines = tail if not isinstance(tail, int) else last_lines(str(self.log), tail, shown) if tail else []
        text += "".join(f"{clip(line, width)}\n" for line in lines)
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="replace"))
        STDERR_LINE.begin()

    def stands_for_keyboard(self, descriptor: int) -> bool:
        """Return whether a descriptor is what the capture has put in the keyboard's place, and not a file of the script's."""
        # In a child process multiprocessing opens /dev/null again.
        if not self.active or (descriptor != 0 and os.getpid() == self._owner):
            return False
        with contextlib.suppress(OSError):
            return descriptor in self._lent or os.path.samestat(os.fstat(descriptor), os.stat(os.devnull))
        return False

    def lend_terminal(self) -> None:
        """Put the terminal on fds 0 to 2, those of them that the script has not redirected, until `take_terminal_back`."""
        with self._lock:
            self._borrowers += 1
            if not self.active or self._lent:
                return
            for descriptor in (0, 1, 2):
                saved = self._saved.get(descriptor)
                if saved is not None and (descriptor == 0 or self._leads_to_log(descriptor)):
                    with contextlib.suppress(OSError):
                        os.dup2(saved, descriptor)
                        self._lent.append(descriptor)

    def take_terminal_back(self) -> None:
        """End a loan. The last one's end puts the log and /dev/null back."""
        with self._lock:
            self._borrowers = max(0, self._borrowers - 1)
            if self._borrowers:
                return
            for descriptor in self._lent:
                with contextlib.suppress(OSError):
                    os.dup2(self._log_descriptor if descriptor else self._null, descriptor)
            self._lent = []

    def read_nothing(self, read: Callable[[], T]) -> T:
        """Return what `read` reads without the terminal. Say why, if that is the end of the file."""
        try:
            found = read()
        except EOFError:
            self._refuse_input()
            raise
        if not found:
            self._refuse_input()
        return found

    def _refuse_input(self) -> None:
        if not self.active or self.asked_for_input:
            return
        self._was_refused[0] = True
        # The leading newline: most likely a prompt precedes it on the line.
        with contextlib.suppress(OSError):
            os.write(self._log_descriptor, f"\n{INPUT_REFUSED}".encode())

    def _lose(self, descriptor: int, size: int, error: OSError) -> bool:
        # If the script has redirected the descriptor, the error is the script's. While the script has the terminal, what other
        # threads write goes to the log.
        if not (self.active and (descriptor in self._lent or self._leads_to_log(descriptor))):
            return False
        self.lost_bytes += size
        if self.trouble is None:
            self.trouble = error.strerror or str(error)
            self._on_trouble(self.trouble)
        return True

    def _leads_to_log(self, descriptor: int) -> bool:
        # Do not compare with gradtui's own descriptor of the log: the script may have closed it.
        with contextlib.suppress(OSError):
            return self._log_status is not None and os.path.samestat(os.fstat(descriptor), self._log_status)
        return False

    def _put_back(self, descriptor: int) -> None:
        saved = self._saved.pop(descriptor, None)
        if saved is None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            return
        try:
            os.dup2(saved, descriptor)
            os.close(saved)
        except OSError:
            # The script has closed gradtui's descriptor, as `os.closerange` does. It was a terminal: there is a screen.
            with contextlib.suppress(OSError):
                terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
                os.dup2(terminal, descriptor)
                os.close(terminal)

    def _restore_columns(self) -> None:
        """Restore COLUMNS. Main thread only: a setenv on another thread can invalidate the environment that C code reads."""
        if self._columns is None or os.environ.get("COLUMNS") != self._columns:
            return  # the script has set its own
        if self._columns_before is None:
            os.environ.pop("COLUMNS", None)
        else:
            os.environ["COLUMNS"] = self._columns_before
