"""Links to lines of files, in terminals that can open them: the escape sequence OSC 8. Any thread; standard library only.

The sequence: https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda. A terminal that does not know it may print it,
so only those get it that say who they are.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from urllib.parse import quote

_PROGRAMS = {"vscode", "iTerm.app", "WezTerm", "ghostty", "Hyper", "Tabby"}
_VARIABLES = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION")
_TERMS = ("xterm-kitty", "foot", "alacritty", "wezterm", "xterm-ghostty", "contour")
"""Beginnings of TERM."""
_VTE = 5000
"""The first version of the library of GNOME's terminals that knows the sequence."""


def opens_links(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal that an environment describes opens links.

    Within tmux and screen it is not known. A viewer in a web page (`TEXTUAL_DRIVER`) is in no terminal.
    """
    if environ.get("TEXTUAL_DRIVER"):
        return False
    if environ.get("TMUX") or environ.get("STY") or environ.get("TERM", "dumb") in ("dumb", "linux"):
        return False
    version = environ.get("VTE_VERSION", "")
    return (
        environ.get("TERM_PROGRAM") in _PROGRAMS
        or any(environ.get(name) for name in _VARIABLES)
        or environ.get("TERM", "").startswith(_TERMS)
        or (version.isascii() and version.isdecimal() and int(version[:9]) >= _VTE)
    )


def file_address(file: str, line: int) -> str:
    """Return the address of a line of a file on this machine; the path is from the current directory."""
    path = quote(os.path.abspath(file), errors="replace")
    return f"file://{quote(socket.gethostname())}{path}#{line}"


def with_file_link(text: str, file: str, line: int) -> str:
    """Return a text whose last `[file:line]` is a link.

    Args:
        text: a line without control characters.
        file: the path, from the current directory; the part of the text that shows it has no control characters.
        line: the number of the line.
    """
    place = f"{file}:{line}"
    address = file_address(file, line)
    before, found, after = text.rpartition(f"[{place}]")
    return f"{before}[\x1b]8;;{address}\x1b\\{place}\x1b]8;;\x1b\\]{after}" if found else text
