"""Parses coloured terminal text, as plotext emits it, into runs of text and style key. Pure.

plotext 6 emits one foreground colour of the 256-colour palette ("38;5;N"), one background and a reset at every change of
colour. gradtui gives it numbers of style keys ("inks") as colours, so only the foreground matters here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradtui.tui.charts.chart import Chart
from gradtui.tui.charts.request import AXIS, PLAIN, TICK, Line, Run

FIRST_INK = 16
"""The palette number of the first style key: the sixteen numbers below are the basic colours, which have other sequences."""

_SEQUENCE = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_FOREGROUND = "38;5;"


def style_keys(chart: Chart) -> tuple[str, ...]:
    """Return the style keys of a chart in the order of their inks."""
    colors = [curve.color for curve in chart.curves] + [mark.color for mark in chart.marks]
    return tuple(dict.fromkeys((AXIS, TICK, *colors)))


def parse(text: str, keys: Sequence[str]) -> tuple[Line, ...]:
    """Parse text into lines of runs; ink `FIRST_INK + i` has the style key `keys[i]`. Drops control characters."""
    return tuple(_line(line, keys) for line in text.removesuffix("\n").split("\n"))


def _line(line: str, keys: Sequence[str]) -> Line:
    # The pieces are a text, then for each sequence its parameters, its final character, and the text after it.
    pieces = _SEQUENCE.split(line)
    runs: list[Run] = []
    key = PLAIN
    for i in range(0, len(pieces), 3):
        if i and pieces[i - 1] == "m":
            key = _key(pieces[i - 2], keys, key)
        text = pieces[i] if pieces[i].isprintable() else "".join(filter(str.isprintable, pieces[i]))
        if text:
            runs.append((text, key))
    return tuple(runs)


def _key(parameters: str, keys: Sequence[str], key: str) -> str:
    """Return the style key after an SGR sequence with these parameters, before which it was `key`."""
    if parameters.startswith(_FOREGROUND):
        ink = int(parameters.removeprefix(_FOREGROUND)) - FIRST_INK
        return keys[ink] if 0 <= ink < len(keys) else PLAIN
    return PLAIN if parameters == "0" else key
