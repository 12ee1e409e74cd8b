"""Allow one run at a time to write to a file, by locks on files named after it. Main thread.

Where the files of the locks lie depends on nothing in the environment: two runs that are started differently meet there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradtui.configuration.settings import Settings

_FOLDER = "/tmp"
_LOST = {"record": "nothing is recorded", "summary": "no summary is written", "log": "the output goes to another log"}
"""By the setting that has the path: what becomes of a run that may not write there."""

_held: dict[str, str] = {}
"""The settings for which this process has a file, by the path of the file."""
_release: list[Callable[[], None]] = []


def with_own_files(settings: Settings, say: Callable[[str], None]) -> Settings:
    """Return the settings without the files that another run writes to. The others belong to this process until it ends.

    `say` receives one line for each that is left out.
    """
    if os.name != "posix":
        return settings
    left_out: dict[str, Any] = {}
    for name, lost in _LOST.items():
        path: Path | None = getattr(settings, name)
        holder = _holder(path, name, settings.target.name) if path is not None else None
        if holder is not None:
            say(f"{path} is written by {holder}; {lost}")
            left_out[name] = None
    return replace(settings, **left_out)


def release_files() -> None:
    """Leave the files to other runs: nothing is written any more."""
    while _release:
        _release.pop()()
    _held.clear()


def _holder(path: Path, name: str, script: str) -> str | None:
    """Return who else has a file, in words; None if it is this process's now, or is no file (a pipe, a device)."""
    from gradtui.runner.lock_file import LockFile

    file = os.path.realpath(path)
    if os.path.exists(file) and not os.path.isfile(file):
        return None
    try:
        folder = os.stat(os.path.dirname(file))
    except OSError:
        return None
    if file in _held:
        return f"this run as its {_held[file]}"
    base = os.path.basename(file).encode(errors="surrogateescape")
    # A directory may have several paths, and a name is as long as a file's may be.
    key = f"{folder.st_dev:x}-{folder.st_ino:x}-{hashlib.sha256(base).hexdigest()[:16]}"
    common = _FOLDER if os.access(_FOLDER, os.W_OK) else tempfile.gettempdir()
    lock = LockFile(common, f"gradtui-{os.geteuid()}-file", key)
    holder = lock.acquire(script)
    if holder is None:
        _held[file] = name
        _release.append(lock.release)
    return holder
