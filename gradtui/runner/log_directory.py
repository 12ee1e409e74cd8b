"""Create the logs of runs and remove old ones. Main thread, before the screen starts.

A log that is being written is locked (`flock`, shared) as long as any process has it open, so that the removal of old logs
never removes the log of a live run, wherever its process runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gradtui.runner.run_files import run_name, state_directory

LOGS_KEPT = 20
"""Number of newest logs that stay when a run begins, its own included."""

_OWN_NAME = re.compile(r".+-\d{8}-\d{6}-\d+\.log")


def new_log(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Create an empty log file for a run of the script called `name`, and remove the oldest logs of earlier runs.

    The file is in `$XDG_STATE_HOME/gradtui/` (`~/.local/state` if that is not set), or in a directory for temporary files if
    that is not writable. Only its owner can read it.

    Raises:
        OSError: no directory is writable.
    """
    stem = run_name(name)
    file_name = f"{stem}.log"
    with contextlib.suppress(OSError):
        directory = state_directory(environ)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(directory / file_name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        prune(directory, keep=directory / file_name)
        return directory / file_name
    descriptor, path = tempfile.mkstemp(prefix=f"{stem}-", suffix=".log")
    os.close(descriptor)
    return Path(path)


def lock_while_open(descriptor: int) -> None:
    """Lock a log as being written as long as this descriptor or a copy of it is open in any process."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def prune(directory: Path, *, keep: Path, count: int = LOGS_KEPT) -> None:
    """Remove gradtui's logs except the `count` newest, those being written, and `keep`. Errors are ignored."""
    with contextlib.suppress(OSError):
        found = [entry for entry in os.scandir(directory) if _OWN_NAME.fullmatch(entry.name) and entry.is_file()]
        found.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        others = [Path(entry.path) for entry in found if Path(entry.path) != keep]
        for path in others[count - 1 :]:
            with contextlib.suppress(OSError):
                _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)
