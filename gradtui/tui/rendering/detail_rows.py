"""Facts with labels, laid out in a column. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradtui.tui.rendering.lines import Line, fit, wrap

_LABEL_WIDTH = 11


@dataclass(frozen=True)
class Fact:
    """A label and its text."""

    label: str
    spans: Line = ()
    row: Callable[[int], Line] | None = None
    """Used instead of `spans`: makes one line for a width, which is not wrapped."""


def said(label: str, words: str | None, role: str = "text") -> list[Fact]:
    """Return a fact with plain words; empty if `words` is None."""
    return [Fact(label, ((words, role),))] if words is not None else []


def detail_lines(facts: Sequence[Fact], width: int) -> list[Line]:
    """Wrap facts into lines, with their labels in a column."""
    lines: list[Line] = []
    room = max(10, width - _LABEL_WIDTH)
    for fact in facts:
        first, *rest = wrap(fact.spans, room) if fact.row is None else [fit(fact.row(room), room)]
        lines.append(((fact.label.ljust(_LABEL_WIDTH), "muted"), *first))
        lines += [((" " * _LABEL_WIDTH, ""), *line) for line in rest]
    return lines
