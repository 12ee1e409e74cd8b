"""Allow one dashboard per terminal, by a lock on a file named after the terminal's device."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from gradtui.runner.lock_file import LockFile


class TerminalLock(LockFile):
    """This process's lock on a terminal for its dashboard."""

    def __init__(self, terminal: int, environ: Mapping[str, str] = os.environ) -> None:
        """Prepare the lock on the terminal open as descriptor `terminal`."""
        device = os.fstat(terminal)
        runtime = environ.get("XDG_RUNTIME_DIR", "")
        is_private = os.path.isabs(runtime) and os.access(runtime, os.W_OK)
        # A local directory, unlike the home directory, which machines may share: they have terminals of the same number.
        folder = runtime if is_private else tempfile.gettempdir()
        owner = "" if is_private else f"{os.geteuid()}-"
        super().__init__(folder, f"gradtui-{owner}terminal", f"{device.st_dev:x}-{device.st_rdev:x}")
