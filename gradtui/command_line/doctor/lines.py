"""The page of `gradtui doctor` as text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gradtui.command_line.doctor.page import Lack, Page
from gradtui.system.version import __version__

_WIDTH = 79
_NAME = 13
"""Columns of the names of parts."""


def page_lines(page: Page) -> list[str]:
    """Return the lines: each part with its name, then what is missing."""
    lines = [f"{'gradtui':<{_NAME}}{__version__}"]
    for part in page.parts:
        name = part.name
        for row in part.rows:
            lines += _wrapped(f"{name:<{_NAME}}", row, " " * (_NAME + 2))
            name = ""
    lines.append("")
    if not page.lacks:
        return [*lines, "nothing is missing"]
    lines.append("missing (! is asked for, and cannot work)" if page.exit_code else "missing")
    for lack in page.lacks:
        lines += _lack_lines(lack)
    return lines


def _lack_lines(lack: Lack) -> Iterator[str]:
    yield from _wrapped(f"{'!' if lack.is_asked_for else '-'} ", f"{lack.name}: {lack.what}", "  ")
    yield from _wrapped("  ", f"costs: {lack.cost}", "    ")
    yield from _wrapped("  ", f"to get it: {lack.remedy}", "    ")


def _wrapped(first: str, text: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
