"""The directory of the sockets of live runs: only its owner can enter it. POSIX only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gradtui.system.own_directories import make_private, state_directory

SUFFIX = ".sock"
_MAX = 100
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
    for directory in socket_directories(environ):
        if len(os.fsencode(directory)) > _MAX - _NAME:
            continue
        try:
            if directory.parent == state_directory(environ):
                # An earlier version may have made it for all.
                make_private(directory.parent.resolve())
            make_private(directory)
        except OSError as error:
            trouble = trouble or error
        else:
            return directory
    raise trouble or OSError("no place for sockets")


def socket_directories(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield the directories of which the first that can be used has the sockets. They need not exist."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        yield Path(runtime) / "gradtui"
    yield state_directory(environ) / "sockets"
    yield Path(tempfile.gettempdir()) / f"gradtui-{os.getuid()}"
