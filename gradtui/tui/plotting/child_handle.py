"""One plot child as its parent holds it: start, write and read without ever waiting, end. On the thread that starts it.

There is no thread for it: the two pipes are non-blocking and are looked at when a panel asks for a picture, and only
while an answer is due. A reader thread would wake up to compete for the GIL exactly while the script trains. Starting
costs the caller less than a millisecond whatever the size of this process: without a preexec_fn Python uses vfork on
Linux.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gradtui.tui.plotting.messages import MessageReader

_READ_SIZE = 1 << 16
_PIPE_SIZE = 1 << 20
_KILL_SECONDS = 1.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])

# Not "-m": it puts the working directory first on the path, where a file may be called like a module that we need.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv[1]); "
    "from gradtui.tui.plotting.plotext_child import main; sys.exit(main(sys.argv[2:]))"
)


def default_command() -> list[str]:
    """The command of the plot child for this process: the same Python, without warnings."""
    return [sys.executable, "-W", "ignore", "-c", _START, _PACKAGE_ROOT, str(os.getpid())]


class ChildHandle:
    """A running child, in a session of its own: Ctrl+C, Ctrl+Z and a stop of our process group do not reach it.

    Raises OSError where the process cannot be started.
    """

    def __init__(self, command: Sequence[str], log: int | None = None) -> None:
        """`log` is a file descriptor for what the child says on stderr; without it that is dropped."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if log is None else log,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("no pipes to the plot child")
        self._input, self._output = self._process.stdin, self._process.stdout
        for pipe in (self._input, self._output):
            os.set_blocking(pipe.fileno(), False)
            _enlarge(pipe.fileno())
        self._unsent = b""
        self._reader = MessageReader()
        self.moved = 0
        """Bytes sent and received so far: while this grows, the child is alive."""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def send(self, message: bytes) -> None:
        """Queue a message and write what the pipe takes. Raises OSError where the child is gone."""
        self._unsent += message
        self.flush()

    def flush(self) -> None:
        """Write more of what is queued. Raises OSError where the child is gone."""
        while self._unsent:
            try:
                written = os.write(self._input.fileno(), self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[written:]
            self.moved += written

    def received(self) -> Iterator[tuple[int, bytes]]:
        """The messages that have come in. Raises EOFError where the child is gone, ValueError where it talks
        nonsense."""
        while True:
            try:
                data = os.read(self._output.fileno(), _READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                raise EOFError("the plot child has ended")
            self.moved += len(data)
            yield from self._reader.feed(data)

    def kill(self) -> None:
        """End the child at once, without waiting for it; `reaped` or `wait` must follow."""
        with suppress(OSError):
            self._process.kill()
        for pipe in (self._input, self._output):
            with suppress(OSError):
                pipe.close()

    def reaped(self) -> bool:
        """Whether the killed child has left the process table."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait for a killed child to leave the process table, about a second at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)


def _enlarge(descriptor: int) -> None:
    """Let the pipe take a whole picture, so that one look is enough; Linux has this, and may refuse it."""
    request = getattr(fcntl, "F_SETPIPE_SZ", None)
    if request is not None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, request, _PIPE_SIZE)
