"""The directories that gradtui makes for itself: only their owner can enter them, whatever the umask. Standard library only."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_OWNER_ONLY = 0o700


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the files that gradtui keeps between runs, in `$XDG_STATE_HOME` or `~/.local/state`.

    It need not exist.
    """
    state = environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~")) / ".local" / "state"
    return home / "gradtui"


def make_private(directory: Path) -> None:
    """Make a directory with those of its parents that are missing, all for their owner only.

    One that is there already, and that other users can enter, is closed to them. Parents that are there stay as they are.

    Raises:
        OSError: it cannot be made, is no directory, or belongs to another user.
    """
    for missing in [*reversed(directory.parents), directory]:
        if not missing.exists():
            # `Path.mkdir` gives its mode to the last directory only.
            missing.mkdir(_OWNER_ONLY, exist_ok=True)
    if sys.platform == "win32":  # which has no such modes
        return
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if found.st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")
    if stat.S_IMODE(found.st_mode) != _OWNER_ONLY:
        directory.chmod(_OWNER_ONLY)
