"""Parses coloured terminal text, as plotext emits it, into runs of text and style key. Pure.

plotext 6 emits one foreground colour of the 256-colour palette ("38;5;N"), one background and a reset at every change of
colour. gradtui gives it numbers of style keys ("inks") as colours, so only the foreground matters here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gradtui.tui.charts.request import PLAIN, Line, Run

FIRST_INK = 16
"""The palette number of the first style key: the sixteen numbers below are the basic colours, which have other sequences."""

LAST_INK = 255

_SEQUENCE = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNCHANGED, _RESET = -1, -2


def parse(text: str, keys: Sequence[str]) -> tuple[Line, ...]:
    """Parse text into lines of runs; ink `FIRST_INK + i` has the style key `keys[i]`.

    Other sequences and control characters are dropped. Blanks are joined to the run before them, because they show no style.
    """
    return tuple(_line(line, keys) for line in text.removesuffix("\n").split("\n"))


def _line(line: str, keys: Sequence[str]) -> Line:
    # The pieces are a text, then for each sequence its parameters, its final character, and the text after it.
    pieces = _SEQUENCE.split(line)
    runs: list[Run] = []
    key = run_key = PLAIN
    texts: list[str] = []
    for i in range(0, len(pieces), 3):
        if i and pieces[i - 1] == "m":
            ink = _ink(pieces[i - 2])
            if ink != _UNCHANGED:
                key = keys[ink] if 0 <= ink < len(keys) else PLAIN
        text = pieces[i]
        if not text:
            continue
        if key != run_key and not text.isspace():
            if texts:
                runs.append(("".join(texts), run_key))
                texts = []
            run_key = key
        texts.append(text if text.isprintable() else "".join(filter(str.isprintable, text)))
    return (*runs, ("".join(texts), run_key)) if texts else tuple(runs)


@lru_cache(maxsize=512)
def _ink(parameters: str) -> int:
    """Return the index of the style key that an SGR sequence selects, `_RESET` for another colour, or `_UNCHANGED`."""
    ink = _UNCHANGED
    codes = [int(code) if code.isdigit() else -1 for code in re.split("[;:]", parameters or "0")]
    while codes:
        code = codes.pop(0)
        if code in (38, 48):
            taken = 2 if codes[:1] == [5] else 4
            colour, codes = codes[:taken], codes[taken:]
            if code == 38:
                ink = colour[1] - FIRST_INK if len(colour) == 2 and colour[1] >= FIRST_INK else _RESET
        elif code in (0, 39) or 30 <= code <= 37 or 90 <= code <= 97:
            ink = _RESET
    return ink
