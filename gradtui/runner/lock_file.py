"""Locks on files of gradtui's own, which say that this process has something that only one run can have. Main thread, then any.

It is a POSIX lock (`fcntl.lockf`): the kernel releases it when the process ends, however it ends, and processes that the script
forks do not inherit it. If the lock cannot be created, the run continues as if it had the lock.

The file is removed with the lock. A killed process leaves its file, which the next run that makes a lock of the same kind
removes. A process that has locked a file which was removed meanwhile makes a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import time

from gradtui.system.descriptors import move_aside

_MAX = 4096
_ATTEMPTS = 8
"""Others may remove a file between its opening and its locking, or have it locked for a moment to see whether it is stale: as
often as this in a row they do not."""
_PAUSE = 0.005
"""Seconds before the next attempt at a file that another process has locked."""


_own: set[str] = set()
"""The files that this process has locked. To open and close one again would release its lock."""


class LockFile:
    """A lock of this process, from `acquire` until `release`.

    Args:
        folder: the directory of the file, which any user may write to.
        kind: what is locked, in one word.
        key: which one.
    """

    def __init__(self, folder: str, kind: str, key: str) -> None:
        self._descriptor: int | None = None
        self._path = os.path.join(folder, f"{kind}-{key}.lock")
        self._others = os.path.join(glob.escape(folder), f"{kind}-*.lock")
        self._owner = os.getpid()

    def acquire(self, script: str) -> str | None:
        """Lock it for the run of `script`.

        Returns:
            Who has it, in words; None if it was free, or if that is unknown.
        """
        holder = None
        for attempt in range(_ATTEMPTS):
            if holder is not None:
                time.sleep(_PAUSE * attempt)
            try:
                descriptor = _open(self._path)
            except OSError:
                return None
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(descriptor)
                continue
            except OSError:
                os.close(descriptor)
                return None
            if _is_at(descriptor, self._path):
                self._descriptor = descriptor
                _own.add(self._path)
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} ({script})".encode(errors="replace")[:_MAX], 0)
                _remove_stale(self._others)
                return None
            os.close(descriptor)
            holder = None
        return holder

    def release(self) -> None:
        """Release it for another run. A second call does nothing, nor does one in a process that the script has forked."""
        if os.getpid() != self._owner:
            return
        descriptor, self._descriptor = self._descriptor, None
        _own.discard(self._path)
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


def _remove_stale(files: str) -> None:
    """Remove the files of this user that no process has locked."""
    for path in glob.glob(files):
        if path in _own:
            continue
        with contextlib.suppress(OSError):
            descriptor = _open(path, may_create=False)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):
                    os.unlink(path)
            finally:
                os.close(descriptor)


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
        return os.pread(descriptor, _MAX, 0).decode(errors="replace") or "another process"
    except OSError:
        return "another process"
    finally:
        os.close(descriptor)
