"""The directory of the sockets of live runs: only its owner can enter it. POSIX only."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SUFFIX = ".sock"
_LONGEST = 100
"""The longest path of a socket in bytes: Linux allows 107, macOS 103 (sockaddr_un)."""
_NAME = 20
"""The longest name of a socket with the slash before it."""


def socket_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the sockets, which is made if it is missing: in `$XDG_RUNTIME_DIR`, else in the state directory,
    else in the one for temporary files.

    Raises:
        OSError: none of them is writable and private.
    """
    trouble: OSError | None = None
    for directory in _candidates(environ):
        if len(os.fsencode(directory)) > _LONGEST - _NAME:
            continue
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise PermissionError(f"{directory} belongs to another user")
            if stat.S_IMODE(found.st_mode) & 0o077:
                directory.chmod(0o700)
        except OSError as error:
            trouble = trouble or error
        else:
            return directory
    raise trouble or OSError("no place for sockets")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    runtime, state = environ.get("XDG_RUNTIME_DIR", ""), environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        yield Path(runtime) / "gradtui"
    home = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~")) / ".local" / "state"
    yield home / "gradtui" / "sockets"
    yield Path(tempfile.gettempdir()) / f"gradtui-{os.getuid()}"
