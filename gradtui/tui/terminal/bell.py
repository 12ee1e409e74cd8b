"""Rings the terminal's bell, and asks the terminal for a notification on the user's desktop. UI thread.

Both go to the terminal by the driver, in order with what it draws, and never to the script's log. A terminal without
notifications ignores the sequence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from textual.app import App

from gradtui.system.printable import without_controls
from gradtui.tui.terminal.driver import ThreadDriver

_TITLE = "gradtui"
_WITH_777 = ("rxvt", "foot")
_WITHOUT = ("linux", "dumb", "screen")
"""Beginnings of TERM."""


def ring(app: App[Any], text: str) -> None:
    """Ring the bell and show `text` on the desktop. Does nothing while another job or the script has the terminal."""
    driver = getattr(app.driver_class, "current", None)
    if isinstance(driver, ThreadDriver):
        driver.write("\a" + notification(text, os.environ))


def notification(text: str, environ: Mapping[str, str]) -> str:
    """Return the sequence for a notification: OSC 777 for VTE, urxvt and foot, otherwise OSC 9, through tmux if it is there.

    Empty for terminals that would show the sequence as text.
    """
    term = environ.get("TERM", "")
    # A semicolon would begin the next field of the sequence.
    words = without_controls(text).replace(";", ",")
    if environ.get("TMUX"):
        return f"\x1bPtmux;\x1b\x1b]9;{_TITLE}: {words}\a\x1b\\"
    if not term or term.startswith(_WITHOUT):
        return ""
    if environ.get("VTE_VERSION") or term.startswith(_WITH_777):
        return f"\x1b]777;notify;{_TITLE};{words}\a"
    return f"\x1b]9;{_TITLE}: {words}\a"
