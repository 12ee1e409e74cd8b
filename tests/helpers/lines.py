"""The words of drawn lines, without their roles."""

from __future__ import annotations

from collections.abc import Iterable

Line = Iterable[tuple[str, str]]
"""Pieces of text, each with its role."""


def line_text(line: Line) -> str:
    """Return the words of one line."""
    return "".join(part for part, _ in line)


def texts(lines: Iterable[Line]) -> list[str]:
    """Return the words of each line."""
    return [line_text(line) for line in lines]


def text(lines: Iterable[Line]) -> str:
    """Return the words of lines, joined by line breaks."""
    return "\n".join(texts(lines))
