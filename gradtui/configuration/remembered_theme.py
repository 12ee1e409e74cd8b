"""The theme that the user chose last on the screen, in a file of its own: gradtui never rewrites a file that the user wrote."""

from __future__ import annotations

import contextlib
from pathlib import Path

from platformdirs import user_state_path

from gradtui.system.atomic_file import OWNER_ONLY, write_atomically
from gradtui.system.own_directories import make_private
from gradtui.system.regular_file import open_regular

_MAX_BYTES = 100


def theme_file() -> Path:
    """Return the path of the file, which need not exist."""
    return user_state_path("gradtui") / "theme"


def remembered_theme() -> str | None:
    """Return the name in the file; None if it cannot be read."""
    try:
        with open_regular(theme_file()) as file:
            return file.read(_MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None


def remember_theme(name: str) -> None:
    """Write the name to the file. Errors are ignored."""
    file = theme_file()
    with contextlib.suppress(OSError):
        make_private(file.parent.resolve())
        write_atomically(file, lambda stream: stream.write(f"{name}\n".encode()), mode=OWNER_ONLY)
