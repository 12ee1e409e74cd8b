"""`python -m gradtui` is the same as the command `gradtui`."""

from __future__ import annotations

import contextlib
import os
import sys

_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _find_no_file_of_the_current_directory() -> None:
    """Let gradtui import what the command imports: `-m` puts the current directory first, whose `click.py` may be the user's.

    The script puts its own directory there (`script.run`).
    """
    is_safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    with contextlib.suppress(OSError):
        if not is_safe and sys.path and sys.path[0] == os.getcwd():
            sys.path[0] = _PARENT


if __name__ == "__main__":
    _find_no_file_of_the_current_directory()
    from gradtui.command_line.cli import main

    sys.exit(main())
