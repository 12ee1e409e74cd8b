"""Remove control characters from text for the terminal: names of a script's parameters, modules, classes and files may
contain control sequences.

gradtui writes each of its lines to stderr through `write_line` or `PlainReporter.say`, and draws the screen through
`tui.terminal.NoControls`. Any thread; standard library only.
"""

from __future__ import annotations

import re
import sys

from gradtui.system.cursor_line import STDERR_LINE

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_REPLACED = dict.fromkeys((*range(32), 127, *range(128, 160), 8206, 8207, 8232, 8233, 1564), "·")
_REPLACED |= dict.fromkeys((*range(8234, 8239), *range(8294, 8298)), "·")
_REPLACED[ord("\t")] = " "
"""Control characters of ASCII and Latin-1, line separators, and characters that reverse the direction of text.
`str.isprintable` is False for each of them."""

_DELETED = dict.fromkeys(_REPLACED)


def printable(text: str) -> str:
    """Replace each control character by a dot, because a terminal would execute it."""
    return text if text.isprintable() else text.translate(_REPLACED)


def without_controls(text: str) -> str:
    """Remove the control characters. The width of the text stays the same, because they occupy no cell."""
    return text if text.isprintable() else text.translate(_DELETED)


def without_sequences(text: str) -> str:
    """Remove whole escape sequences, such as those for colours."""
    return _SEQUENCE.sub("", text)


def write_line(text: str) -> None:
    """Write a line to `sys.stderr` with the prefix `gradtui: `, below a line that the script has not ended."""
    sys.stderr.write(f"{STDERR_LINE.take_fresh()}gradtui: {printable(text)}\n")
