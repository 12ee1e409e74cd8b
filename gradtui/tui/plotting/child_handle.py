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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from gradtui.tui.plotting.messages import MessageReader

_READ_SIZE = 1 << 16
_PIPE_SIZE = 1 << 20
_KILL_SECONDS = 1.0
_LOWEST_OWN = 200
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])

# Not "-m": it puts the working directory first on the path, where a file may be called like a module that we need.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv[1]); "
    "from gradtui.tui.plotting.plotext_child import main; sys.exit(main(sys.argv[2:]))"
)


def default_command(parent: int | None = None) -> list[str]:
    """The command of the plot child: the same Python, without warnings. `parent` is who starts it; this process by default."""
    return [sys.executable, "-W", "ignore", "-c", _START, _PACKAGE_ROOT, str(parent or os.getpid())]


class Started(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int

    def kill(self) -> None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Starter(Protocol):
    """Starts processes, each in a session of its own: Ctrl+C, Ctrl+Z and a stop of our process group do not reach them."""

    parent: int
    """The process whose children they are."""

    def start(self, command: Sequence[str], stdin: int, stdout: int, stderr: int) -> Started:
        """Start one with these descriptors. Raises OSError where that fails."""
        ...


class OwnChildren:
    """Starts them as children of this process."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def start(self, command: Sequence[str], stdin: int, stdout: int, stderr: int) -> Started:
        """Start one."""
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, close_fds=True, start_new_session=True
        )


class ChildHandle:
    """A running child. Raises OSError where the process cannot be started."""

    def __init__(self, command: Sequence[str], log: int | None = None, starter: Starter | None = None) -> None:
        """`log` is a file descriptor for what the child says on stderr; without it that is dropped."""
        with ExitStack() as theirs, ExitStack() as ours:
            stdin, self._input = _pipe(theirs, ours)
            self._output, stdout = _pipe(ours, theirs)
            stderr = _closed_with(theirs, os.open(os.devnull, os.O_WRONLY)) if log is None else log
            self._process = (starter or OwnChildren()).start(command, stdin, stdout, stderr)
            self._pipes = ours.pop_all()
        for pipe in (self._input, self._output):
            os.set_blocking(pipe, False)
            _enlarge(pipe)
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
                written = os.write(self._input, self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[written:]
            self.moved += written

    def received(self) -> Iterator[tuple[int, bytes]]:
        """The messages that have come in. Raises EOFError where the child is gone, ValueError where it talks
        nonsense."""
        while True:
            try:
                data = os.read(self._output, _READ_SIZE)
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
        with suppress(OSError):
            self._pipes.close()

    def reaped(self) -> bool:
        """Whether the killed child has left the process table."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait for a killed child to leave the process table, about a second at most."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    read, write = (_aside(end) for end in os.pipe())
    return _closed_with(reading, read), _closed_with(writing, write)


def _aside(descriptor: int) -> int:
    """Move a descriptor out of the script's way: one that closes all, and opens files of its own, gets low numbers."""
    with suppress(OSError):
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST_OWN)
        os.close(descriptor)
        return moved
    return descriptor


def _closed_with(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _enlarge(descriptor: int) -> None:
    """Let the pipe take a whole picture, so that one look is enough; Linux has this, and may refuse it."""
    request = getattr(fcntl, "F_SETPIPE_SZ", None)
    if request is not None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, request, _PIPE_SIZE)
