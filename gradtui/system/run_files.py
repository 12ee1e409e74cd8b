"""Create the files of runs, and remove the oldest of those that the user did not request. Any thread; standard library only.

The log of a live run stays: it is locked (`flock`, shared) as long as any process has it open, wherever that process runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gradtui.system.atomic_file import OWNER_ONLY, Fill, write_atomically
from gradtui.system.own_directories import make_private, state_directory

if sys.platform != "win32":
    import fcntl

LOGS_KEPT = 20
"""Maximum number of logs of all runs that stay, the newest ones. Those being written stay too."""

OOM_REPORTS_KEPT = 20
"""The same limit for out-of-memory reports."""

SCHEDULES_KEPT = 100
"""The same limit for the schedules that gradtui wrote at the end of runs, each with its code."""

_RUN = r".+-\d{8}-\d{6}-\d+"
_KEPT = (
    (re.compile(_RUN + r"\.log"), LOGS_KEPT),
    (re.compile(_RUN + r"-out-of-memory-\d+\.txt"), OOM_REPORTS_KEPT),
    (re.compile(_RUN + r"-schedule-\d+\.(toml|py)"), SCHEDULES_KEPT),
)
"""The names of files that the user did not request, and how many of each kind stay. Files that differ only in the suffix count
once."""

_RANK_LOGS = re.compile(rf"({_RUN}\.log)\.ranks")
"""The directory of the logs of ranks, which goes with the log of their launcher."""


def present_directory() -> str:
    """Return the working directory of this process; an empty text if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class RunFiles:
    """Creates the files of one run in `$XDG_STATE_HOME/gradtui` (`~/.local/state` if that is not set), or in a directory for
    temporary files if that is not writable. Only their owner can read them."""

    def __init__(self, script: str, environ: Mapping[str, str] = os.environ) -> None:
        stem = re.sub(r"[^\w.-]+", "_", script.removesuffix(".py"))[:80]
        self._name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._directory = state_directory(environ)
        self._made = 0

    def write(self, kind: str, suffix: str, fill: Fill) -> str:
        """Create the file `NAME-KIND-NUMBER.SUFFIX` with what `fill` writes, completely or not at all, and return its path.

        Raises:
            OSError: no directory is writable, or the disk is full.
        """
        self._made += 1
        return self._write(f"{self._name}-{kind}-{self._made}{suffix}", fill)

    def write_beside(self, path: str, suffix: str, fill: Fill) -> str:
        """Create a file with the name of another file of this run and another suffix, as `write` does."""
        beside = Path(path).with_suffix(suffix)
        write_atomically(beside, fill, mode=OWNER_ONLY)
        return str(beside)

    def new_log(self) -> Path:
        """Create an empty log file. Raises OSError if no directory is writable."""
        return Path(self._write(f"{self._name}.log", lambda _file: None))

    def _write(self, name: str, fill: Fill) -> str:
        trouble: OSError | None = None
        for directory in self._directories():
            try:
                if directory == self._directory:
                    # A link to another place is the user's own.
                    make_private(directory.resolve())
                write_atomically(directory / name, fill, mode=OWNER_ONLY)
            except OSError as error:
                trouble = trouble or error
            else:
                prune(directory)
                return str(directory / name)
        raise trouble or OSError("no place can be written")

    def _directories(self) -> Iterator[Path]:
        yield self._directory
        # `gettempdir` raises as well if no directory is writable.
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir())


def lock_while_open(descriptor: int) -> None:
    """Lock a log as being written as long as this descriptor or a copy of it is open in any process."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def prune(directory: Path) -> None:
    """Remove all but the newest files of each kind, and those being written. Errors are ignored."""
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
        for name, count in _KEPT:
            found = [entry for entry in entries if name.fullmatch(entry.name)]
            found.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
            stems = list(dict.fromkeys(os.path.splitext(entry.name)[0] for entry in found))
            old = set(stems[count:])
            for entry in found:
                if os.path.splitext(entry.name)[0] in old:
                    with contextlib.suppress(OSError):
                        _remove_unless_locked(Path(entry.path))
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(directory)):
            match = _RANK_LOGS.fullmatch(entry.name)
            if match is not None and entry.is_dir(follow_symlinks=False) and not (directory / match[1]).exists():
                _remove_directory(Path(entry.path))


def _remove_directory(directory: Path) -> None:
    """Remove the logs of ranks that nothing writes to, and the directory if it is empty then."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(directory)):
            if entry.is_file(follow_symlinks=False):
                _remove_unless_locked(Path(entry.path))
        directory.rmdir()


def _remove_unless_locked(path: Path) -> None:
    if sys.platform == "win32":  # it removes no file that is open
        path.unlink()
        return
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
