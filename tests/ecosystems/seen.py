"""What a person sees of a script's output on the screen, and what a terminal of its own would have shown of it."""

from __future__ import annotations

import re
from pathlib import Path

import pyte
from helpers.terminal_session import TerminalSession

_LINES, _COLUMNS = 400, 1000
"""A terminal on which nothing scrolls away or is broken into two lines."""

STRAY = re.compile(r"\x1b|�|\[[0-9;?]*[A-HJKhlm](?![a-z])")
"""What is left of an escape sequence that was not followed."""


def on_a_terminal(output: bytes) -> list[str]:
    """The lines that a terminal shows after these bytes, by pyte; empty ones are left out."""
    screen = pyte.Screen(_COLUMNS, _LINES)
    screen.set_mode(pyte.modes.LNM)
    pyte.ByteStream(screen).feed(output)
    return [line.rstrip() for line in screen.display if line.strip()]


def panel(session: TerminalSession) -> list[str]:
    """The lines of the output panel: within its frame, or on a small screen below its title."""
    display = session.screen.display
    top = next(row for row, line in enumerate(display) if re.search("─ ?Output │", line))
    lines = [line.rstrip() for line in display[top + 1 : -1]]
    if display[top].startswith("╭"):
        bottom = next(row for row, line in enumerate(lines) if line.startswith("╰"))
        assert all(line[0] == line[-1] == "│" for line in lines[:bottom]), "\n".join(display)
        lines = [line[1:-1] for line in lines[:bottom]]
    return [line.replace("▐", " ").strip() for line in lines]


def flowing(lines: list[str]) -> str:
    """Lines as one text without blanks: where they are broken makes no difference."""
    return "".join("".join(lines).split())


def is_shown(session: TerminalSession, log: Path) -> bool:
    """Whether the panel has the end of what a terminal would show of the log."""
    return bool(shown := flowing(panel(session))) and flowing(on_a_terminal(log.read_bytes())).endswith(shown)


def is_laid_out(session: TerminalSession) -> bool:
    """Whether there are frames, or on a small screen titles, between the header with its verdict and the keys."""
    display, columns = session.screen.display, session.screen.columns
    framed = all(line[0] in "╭│╰" and line[columns - 1] in "╮│╯" for line in display[2:-1])
    titled = display[2].startswith("─Model") and any("─Output" in line for line in display)
    return (
        (framed or titled)
        and display[0].lstrip()[:1] in "‖●"
        and "help" in display[-1]
        and not STRAY.search(session.text)
    )
