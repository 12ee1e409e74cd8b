"""One dashboard per terminal: a lock on a file that is named by the terminal's device. Main thread, then any thread.

The lock is one of POSIX (`fcntl.lockf`): the kernel releases it when the process ends, however it ends, and processes that the
script forks do not inherit it. Where no lock can be made the run goes on as if it had it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Mapping

from gradtui.descriptors import move_aside

_LONGEST = 4096


class TerminalClaim:
    """The terminal of this process for its dashboard, from `take` until `release`."""

    def __init__(self, terminal: int, environ: Mapping[str, str] = os.environ) -> None:
        """Prepare it for the terminal that is open as `terminal`."""
        self._descriptor: int | None = None
        self._path = _path(terminal, environ)

    def take(self, script: str) -> str | None:
        """Take the terminal for the run of `script`.

        Returns:
            Who has it, in words; None where it was free, or where that cannot be known.
        """
        try:
            descriptor = _open(self._path)
        except OSError:
            return None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        self._descriptor = descriptor
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} ({script})".encode(errors="replace")[:_LONGEST], 0)
        return None

    def release(self) -> None:
        """Let another dashboard have it. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            # The script may have closed ours, and the number may be that of its own file by now.
            if descriptor is not None and os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                os.close(descriptor)


def _path(terminal: int, environ: Mapping[str, str]) -> str:
    device = os.fstat(terminal)
    name = f"terminal-{device.st_dev:x}-{device.st_rdev:x}.lock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, f"gradtui-{name}")
    # On the machine itself, unlike the home directory: two machines have terminals of the same number.
    return os.path.join(tempfile.gettempdir(), f"gradtui-{os.geteuid()}-{name}")


def _open(path: str) -> int:
    """Open the file, made if need be. Raises OSError where it is not a file of our own."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = move_aside(os.open(path, flags, 0o600))
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise PermissionError(path)
    return descriptor


def _holder(descriptor: int) -> str:
    """Read who has the lock, and close the file."""
    try:
        return os.pread(descriptor, _LONGEST, 0).decode(errors="replace") or "another process"
    except OSError:
        return "another process"
    finally:
        os.close(descriptor)
