"""Allow one dashboard per terminal, by a lock on a file named after the terminal's device. Main thread, then any thread.

It is a POSIX lock (`fcntl.lockf`): the kernel releases it when the process ends, however it ends, and processes that the script
forks do not inherit it. If the lock cannot be created, the run continues as if it had the lock.

The file is removed with the lock. A killed process leaves its file, which the next dashboard of any terminal removes. A process
that has locked a file which was removed meanwhile makes a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import tempfile
from collections.abc import Mapping

from gradtui.descriptors import move_aside

_LONGEST = 4096
_ATTEMPTS = 8
"""Others may remove a file between its opening and its locking: as often as this in a row they do not."""


class TerminalLock:
    """This process's lock on a terminal for its dashboard, from `acquire` until `release`."""

    def __init__(self, terminal: int, environ: Mapping[str, str] = os.environ) -> None:
        """Prepare the lock on the terminal open as descriptor `terminal`."""
        self._descriptor: int | None = None
        self._path = _path(terminal, environ)

    def acquire(self, script: str) -> str | None:
        """Lock the terminal for the run of `script`.

        Returns:
            Who has it, in words; None if it was free, or if that is unknown.
        """
        for _ in range(_ATTEMPTS):
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
            if _is_at(descriptor, self._path):
                self._descriptor = descriptor
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} ({script})".encode(errors="replace")[:_LONGEST], 0)
                _remove_stale(self._path)
                return None
            os.close(descriptor)
        return None

    def release(self) -> None:
        """Release the terminal for another dashboard. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            # The script may have closed gradtui's descriptor, and its number may now belong to a file of the script.
            if descriptor is not None and _is_at(descriptor, self._path):
                os.unlink(self._path)
                os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _remove_stale(own: str) -> None:
    """Remove the files of this user that lie beside our own and that no process has locked."""
    folder, _, ending = own.rpartition("terminal-")
    for path in glob.glob(f"{glob.escape(folder)}terminal-*.lock") if ending else ():
        # Closing our own file would release the lock.
        if path == own:
            continue
        with contextlib.suppress(OSError):
            descriptor = _open(path, may_create=False)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):
                    os.unlink(path)
            finally:
                os.close(descriptor)


def _path(terminal: int, environ: Mapping[str, str]) -> str:
    device = os.fstat(terminal)
    name = f"terminal-{device.st_dev:x}-{device.st_rdev:x}.lock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, f"gradtui-{name}")
    # A local directory, unlike the home directory, which machines may share: they have terminals of the same number.
    return os.path.join(tempfile.gettempdir(), f"gradtui-{os.geteuid()}-{name}")


def _open(path: str, *, may_create: bool = True) -> int:
    """Open the file, creating it if needed. Raises OSError if it is not a regular file of this user."""
    flags = os.O_RDWR | (os.O_CREAT if may_create else 0) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = move_aside(os.open(path, flags, 0o600))
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise PermissionError(path)
    return descriptor


def _holder(descriptor: int) -> str:
    """Return in words who has the lock, and close the file."""
    try:
        return os.pread(descriptor, _LONGEST, 0).decode(errors="replace") or "another process"
    except OSError:
        return "another process"
    finally:
        os.close(descriptor)
