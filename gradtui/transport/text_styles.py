"""Lines of a script's output with the colours that it gave them, read from SGR sequences. Pure; standard library only.

Of all that a terminal can do to text only these survive: a colour and a background, bold, dim, italic, underline and reverse.
A style is a text of three parts with a colon between: the letters of its attributes (`b`, `d`, `i`, `u`, `r`), its colour and
its background. A colour is a number from 0 to 15 (one of the ANSI colours, which a theme decides), `#rrggbb`, or empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from gradtui.named_tuple import NamedTuple

MAX_RUNS = 256
"""Changes of the style that are kept per line; what follows has the style of the last one."""

_ATTRIBUTES = {1: "b", 2: "d", 3: "i", 4: "u", 7: "r"}
_ENDED = {21: "", 22: "bd", 23: "i", 24: "u", 27: "r"}
_LEVELS = (0, 95, 135, 175, 215, 255)
"""The levels of red, green and blue in the cube of the 256 colours."""

_MAX_PARAMETERS = 64
_SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m")


class StyledLine(NamedTuple):
    """A line of text, and where its style changes.

    Attributes:
        text: the line, without control characters.
        runs: the first index of each run and its style; "" is plain. Text before the first run is plain.
    """

    text: str = ""
    runs: tuple[tuple[int, str], ...] = ()

    def spans(self) -> Iterator[tuple[str, str]]:
        """Yield the pieces of the text, each with its style."""
        start, style = 0, ""
        for index, its_style in (*self.runs, (len(self.text), "")):
            if index > start:
                yield self.text[start:index], style
            start, style = index, its_style

    def part(self, start: int, end: int) -> StyledLine:
        """Return the piece of the line from index `start` to `end`."""
        before = [style for index, style in self.runs if index <= start]
        inside = [(index - start, style) for index, style in self.runs if start < index < end]
        runs = ((0, before[-1]), *inside) if before and before[-1] else tuple(inside)
        return StyledLine(self.text[start:end], runs)


@lru_cache(maxsize=4_096)
def style_after(style: str, sequence: str) -> str:
    """Return the style after an SGR sequence, before which it was `style`. What is malformed or unknown changes nothing."""
    match = _SEQUENCE.fullmatch(sequence)
    if match is None:
        return style
    attributes, *colours = style.split(":") if style else ("", "", "")
    state = _State(set(attributes), colours)
    words = iter(match[1].split(";")[:_MAX_PARAMETERS])
    for word in words:
        state.apply(word, words)
    return state.name


class _State(NamedTuple):
    """The attributes and the two colours of a style."""

    attributes: set[str]
    colours: list[str]

    @property
    def name(self) -> str:
        if not (self.attributes or any(self.colours)):
            return ""
        return ":".join(("".join(sorted(self.attributes)), *self.colours))

    def apply(self, word: str, words: Iterator[str]) -> None:
        """Apply one parameter; a colour of the larger palettes takes more of the `words`."""
        own, *parts = word.split(":")
        number = _number(own)
        if number in (38, 48):
            self.colours[number == 48] = _from_parts(parts) if parts else _from_words(words)
        elif number == 4 and parts:  # a kind of underline; 0 is none
            (self.attributes.discard if _number(parts[0]) == 0 else self.attributes.add)("u")
        elif number == 0:
            self.attributes.clear()
            self.colours[:] = "", ""
        elif number in _ATTRIBUTES:
            self.attributes.add(_ATTRIBUTES[number])
        elif number in _ENDED:
            self.attributes.difference_update(_ENDED[number])
        elif number in (39, 49):
            self.colours[number == 49] = ""
        else:
            for first, colour in ((30, 0), (40, 0), (90, 8), (100, 8)):
                if first <= number < first + 8:
                    self.colours[first in (40, 100)] = str(number - first + colour)


def _number(word: str) -> int:
    # A number with more digits is none that a terminal knows.
    return (int(word) if len(word) < 5 else -1) if word else 0


def _from_words(words: Iterator[str]) -> str:
    kind = _number(next(words, "").split(":")[0])
    count = {2: 3, 5: 1}.get(kind, 0)
    return _colour([_number(next(words, "-1").split(":")[0]) for _ in range(count)])


def _from_parts(parts: list[str]) -> str:
    count = {2: 3, 5: 1}.get(_number(parts[0]), 0)
    # `38:2::r:g:b` names a colour space first, which terminals ignore.
    return _colour([_number(part) for part in parts[1:][-count:]]) if 0 < count < len(parts) else ""


def _colour(numbers: list[int]) -> str:
    if not numbers or not all(0 <= number < 256 for number in numbers):
        return ""
    if len(numbers) == 3:
        red, green, blue = numbers
    elif numbers[0] < 16:
        return str(numbers[0])
    elif numbers[0] < 232:
        cube = numbers[0] - 16
        red, green, blue = (_LEVELS[cube // 36], _LEVELS[cube // 6 % 6], _LEVELS[cube % 6])
    else:
        red = green = blue = 8 + 10 * (numbers[0] - 232)
    return f"#{red:02x}{green:02x}{blue:02x}"
