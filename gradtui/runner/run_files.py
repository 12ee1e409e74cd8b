"""Create the files of a run. Any thread; standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

BOXES_KEPT = 20
"""Maximum number of out-of-memory reports of all runs that stay, the newest ones. Files that the user requested (a snapshot)
are never removed."""

SCHEDULES_KEPT = 100
"""The same limit for the schedules that gradtui wrote at the end of runs, each with its code."""

Fill = Callable[[BinaryIO], object]
"""Writes the content of a file."""

_RUN = r".+-\d{8}-\d{6}-\d+"
_KEPT = (
    (re.compile(_RUN + r"-out-of-memory-\d+\.txt"), BOXES_KEPT),
    (re.compile(_RUN + r"-schedule-\d+\.(toml|py)"), SCHEDULES_KEPT),
)
"""The names of files that the user did not request, and how many of each kind stay. Files that differ only in the suffix count
once."""


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$XDG_STATE_HOME/gradtui`, or `~/.local/state/gradtui` if that is not set. The directory may not exist."""
    state = environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~")) / ".local" / "state"
    return home / "gradtui"


def run_name(script: str) -> str:
    """Return the prefix of the names of a run's files: the script, the time, and the process."""
    stem = re.sub(r"[^\w.-]+", "_", script.removesuffix(".py"))[:80]
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


class RunFiles:
    """Creates the files of one run in the directory of its log. Only their owner can read them."""

    def __init__(self, script: str, environ: Mapping[str, str] = os.environ) -> None:
        self._name = run_name(script)
        self._environ = environ
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
        return str(_new_file(Path(path).with_suffix(suffix), fill))

    def _write(self, name: str, fill: Fill) -> str:
        trouble: OSError | None = None
        for directory in self._directories():
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                path = _new_file(directory / name, fill)
            except OSError as error:
                trouble = trouble or error
            else:
                _prune(directory)
                return str(path)
        raise trouble or OSError("no place can be written")

    def _directories(self) -> Iterator[Path]:
        yield state_directory(self._environ)
        # `gettempdir` raises as well if no directory is writable.
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir())


def _new_file(path: Path, fill: Fill) -> Path:
    # O_EXCL: in a directory for temporary files another user may have created a link of this name.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return path


def _prune(directory: Path) -> None:
    """Remove all but the newest files of each kind. Errors are ignored."""
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(directory) if entry.is_file()]
        for name, count in _KEPT:
            found = [entry for entry in entries if name.fullmatch(entry.name)]
            found.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
            stems = list(dict.fromkeys(os.path.splitext(entry.name)[0] for entry in found))
            old = set(stems[count:])
            for entry in found:
                if os.path.splitext(entry.name)[0] in old:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
