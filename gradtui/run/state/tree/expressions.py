"""Read regular expressions, to search for them in names (`gradtui.run.state.tree.name_search`). Pure.

The language is that of `re`, without what no automaton has (backreferences, conditions, atomic groups, possessive repetition)
and without comments and most flags: `(?i)` at the beginning ignores case. A search only says whether there is a match.

`re` backtracks for ever on some expressions and holds the GIL while it does. google-re2 has no lookahead, which selections
such as `(?!.*norm)` need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gradtui.dataclass import dataclass

MAX_CHARACTERS = 1_000
_MAX_GROUPS = 50
"""Groups within each other."""
_MAX_REPEATS = 1_000


class BadExpressionError(ValueError):
    """A text is no expression, or its search would take too long. The message says why."""


@dataclass(frozen=True)
class CharacterSet:
    """Which characters may come next."""

    ranges: tuple[tuple[int, int], ...]
    classes: str = ""
    """Letters of classes: `d`, `w`, `s`, and in capitals their opposites."""
    is_negated: bool = False
    ignores_case: bool = False

    def has(self, character: str) -> bool:
        """Return whether a character is in the set."""
        cases = {character, character.lower(), character.upper()} if self.ignores_case else {character}
        return any(map(self._has, cases)) != self.is_negated

    def _has(self, character: str) -> bool:
        if len(character) != 1:
            return False
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges) or any(
            _CLASSES[each.lower()](character) == each.islower() for each in self.classes
        )


_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "s": str.isspace,
    "w": lambda sign: sign.isalnum() or sign == "_",
}
WORD = CharacterSet((), "w")
LINE_END = CharacterSet(((10, 10),))


@dataclass(frozen=True)
class Sequel:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A part from `low` to `high` times; None for any number."""

    part: Node
    low: int
    high: int | None


@dataclass(frozen=True)
class Place:
    """A position in a name: `A` its beginning, `Z` its end, `$` its end or before a line end there, `b` and `B`."""

    kind: str


@dataclass(frozen=True)
class Look:
    """A position at which a part follows or, with `is_behind`, ends; or, negated, does not."""

    part: Node
    is_behind: bool
    is_negated: bool


Condition = CharacterSet | Place | Look | None
"""What an edge of an automaton needs; None for nothing."""
Node = CharacterSet | Sequel | Choice | Repeat | Place | Look


@lru_cache(maxsize=64)
def parse(pattern: str) -> Node:
    """Return the expression in a text. Raises `BadExpressionError`."""
    if len(pattern) > MAX_CHARACTERS:
        raise BadExpressionError(f"it has more than {MAX_CHARACTERS:,} characters")
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._ignores_case = pattern.startswith("(?i)")
        self._text = pattern
        self._at = 4 if self._ignores_case else 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("unbalanced parenthesis")
        return node

    def _error(self, what: str) -> BadExpressionError:
        return BadExpressionError(f"{what} at position {self._at}")

    def _took(self, *starts: str) -> str | None:
        """Go beyond the first of these texts that comes next, and return it."""
        found = next((start for start in starts if self._text.startswith(start, self._at)), None)
        self._at += len(found or "")
        return found

    def _next(self, missing: str) -> str:
        if self._at >= len(self._text):
            raise self._error(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> Node:
        parts = [self._sequel()]
        while self._took("|"):
            parts.append(self._sequel())
        return Choice(tuple(parts)) if len(parts) > 1 else parts[0]

    def _sequel(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Sequel(tuple(parts))

    def _repeated(self, atom: Node) -> Node:
        limits = self._limits()
        if limits is None:
            return atom
        if self._took("+"):
            raise self._error("possessive repetition is not supported")
        self._took("?")
        if self._limits() is not None:
            raise self._error("multiple repeat")
        return Repeat(atom, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        sign = self._took("*", "+", "?")
        if sign is not None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        low, comma, high = self._text[self._at + 1 : self._text.find("}", self._at)].partition(",")
        is_number = all(each.isascii() and each.isdigit() for each in (low, high) if each)
        if (
            not self._text.startswith("{", self._at)
            or "}" not in self._text[self._at :]
            or not (is_number and low + comma)
        ):
            return None
        self._at = self._text.index("}", self._at) + 1
        if len(low) > 4 or len(high) > 4:
            raise self._error("too many repetitions")
        limits = int(low or 0), (int(high) if high else None) if comma else int(low)
        if limits[1] is not None and limits[1] < limits[0]:
            raise self._error("min repeat greater than max repeat")
        if max(limits[0], limits[1] or 0) > _MAX_REPEATS:
            raise self._error("too many repetitions")
        return limits

    def _atom(self) -> Node:
        sign = self._next("nothing")
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._set()
        if sign == "\\":
            return self._escape()
        if sign in "*+?":
            raise self._error("nothing to repeat")
        if sign in "^$":
            return Place("A" if sign == "^" else "$")
        return CharacterSet(((10, 10),), is_negated=True) if sign == "." else self._character(ord(sign))

    def _character(self, code: int) -> CharacterSet:
        return CharacterSet(((code, code),), ignores_case=self._ignores_case)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_GROUPS:
            raise self._error("too many groups in each other")
        kind = self._took("?:", "?=", "?!", "?<=", "?<!", "?P<")
        if kind == "?P<":
            name = self._text[self._at : self._text.find(">", self._at)]
            if not name.isidentifier():
                raise self._error("bad group name")
            self._at += len(name) + 1
        elif kind is None and self._took("?"):
            raise self._error("this kind of group is not supported")
        node = self._choice()
        if not self._took(")"):
            raise self._error("missing ), unterminated subpattern")
        self._depth -= 1
        if kind in ("?=", "?!", "?<=", "?<!"):
            return Look(node, "<" in kind, "!" in kind)
        return node

    def _escape(self) -> Node:
        sign = self._next("bad escape (end of pattern)")
        if sign in "dDwWsS":
            return CharacterSet((), sign)
        if sign in "bBAZ":
            return Place(sign)
        if sign in "123456789":
            raise self._error("backreferences are not supported")
        return self._character(self._code(sign))

    def _code(self, sign: str) -> int:
        """Return the character that an escape names, of which the first sign is taken."""
        if sign in _HEX:
            digits = self._text[self._at : self._at + _HEX[sign]]
            self._at += len(digits)
            if len(digits) < _HEX[sign] or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > 0x10FFFF:
                raise self._error(f"bad escape \\{sign}")
            return int(digits, 16)
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign.isascii() and sign.isalnum():
            raise self._error(f"bad escape \\{sign}")
        return ord(sign)

    def _set(self) -> Node:
        is_negated, ranges, classes = self._took("^") is not None, [], ""
        is_first = True
        while (sign := self._next("unterminated character set")) != "]" or is_first:
            is_first = False
            low = self._of_set(sign)
            if isinstance(low, str):
                classes += low
                continue
            high: int | str = low
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._of_set(self._next("unterminated character set"))
            if isinstance(high, str) or high < low:
                raise self._error("bad character range")
            ranges.append((low, high))
        return CharacterSet(tuple(ranges), "".join(sorted(set(classes))), is_negated, self._ignores_case)

    def _of_set(self, sign: str) -> int | str:
        """Return a character of a set, or the letter of a class."""
        if sign != "\\":
            return ord(sign)
        sign = self._next("unterminated character set")
        return sign if sign in "dDwWsS" else 8 if sign == "b" else self._code(sign)


_HEX = {"x": 2, "u": 4, "U": 8}
_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "0": 0}
