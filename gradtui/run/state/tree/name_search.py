"""Search names for regular expressions, in bounded time. Pure.

`re` backtracks, so that one expression can take for ever, and it holds the interpreter while it does. Here an expression is an
automaton, and the positions that each of its states has reached in all names are the bits of one integer. A position is added
to a state once, so the work is bounded by states times characters; beyond `_MAX_WORK` the search is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gradtui.run.state.tree.expressions import (
    LINE_END,
    WORD,
    BadExpressionError,
    CharacterSet,
    Choice,
    Condition,
    Look,
    Node,
    Place,
    Repeat,
    Sequel,
)

_MAX_STATES = 2_000
_MAX_WORK = 1_000_000_000
"""Words of 64 positions that all searches in the same names may look at: one or two seconds."""
_WORK_PER_EDGE = 2_000
_WORK_PER_SET = 50
"""As many edges take as long as to find the characters of a set."""


class Automaton:
    """The states of a part. State 0 is the first. Raises `BadExpressionError` if there are too many."""

    def __init__(self, node: Node, *, is_backward: bool = False) -> None:
        self.is_backward = is_backward
        self.edges: list[list[tuple[Condition, int]]] = [[]]
        self._known: dict[Condition, Condition] = {}
        self.end = self._add(node, 0)

    def _link(self, start: int, by: Condition = None) -> int:
        if len(self.edges) >= _MAX_STATES:
            raise BadExpressionError("it is too large")
        self.edges.append([])
        # Equal conditions are one object, whose positions are computed once.
        self.edges[start].append((self._known.setdefault(by, by), len(self.edges) - 1))
        return len(self.edges) - 1

    def _add(self, node: Node, start: int) -> int:
        """Add a part that begins in the state `start`, and return the state after it."""
        if isinstance(node, Sequel):
            for part in reversed(node.parts) if self.is_backward else node.parts:
                start = self._add(part, start)
            return start
        if isinstance(node, Choice):
            ends = [self._add(part, self._link(start)) for part in node.parts]
            return self._join(ends)
        if isinstance(node, Repeat):
            return self._repeat(node, start)
        return self._link(start, node)

    def _join(self, ends: Sequence[int]) -> int:
        joined = self._link(ends[0])
        for end in ends[1:]:
            self.edges[end].append((None, joined))
        return joined

    def _repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.low):
            start = self._add(node.part, self._link(start))
        if node.high is None:
            loop = self._link(start)
            self.edges[self._add(node.part, loop)].append((None, loop))
            return self._link(loop)
        ends = [start]
        for _ in range(node.high - node.low):
            start = self._add(node.part, self._link(start))
            ends.append(start)
        return self._join(ends)


class Names:
    """Names in which expressions are searched for. Position `i` is before character `i`, or at the end of a name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._text = "".join(f"{name}\n" for name in names)
        self._words = len(self._text) // 64 + _WORK_PER_EDGE
        self._work = 0
        ends = "".join(f"{'0' * len(name)}1" for name in names)
        self._ends = _bits(ends)
        self._all = (1 << len(ends)) - 1
        self._known: dict[int, tuple[Condition, int]] = {}
        """By the id of a condition: it, and the positions at which it holds."""

    def search(self, expression: Automaton) -> Iterator[bool]:
        """Yield for each name whether the expression matches somewhere in it. Raises `BadExpressionError`."""
        found = self._reached(expression, self._all)
        bits = f"{found:0{len(self._text)}b}"[::-1] if self._text else ""
        begin = 0
        for name in self._names:
            end = begin + len(name) + 1
            yield bits.find("1", begin, end) >= 0
            begin = end

    def _reached(self, automaton: Automaton, starts: int) -> int:
        """Return at which positions the automaton ends if it begins at `starts`."""
        reached, waiting = [0] * len(automaton.edges), [0] * len(automaton.edges)
        reached[0] = waiting[0] = starts
        queue = deque([0])
        while queue:
            state = queue.popleft()
            new, waiting[state] = waiting[state], 0
            for by, target in automaton.edges[state]:
                self._work += self._words
                if self._work > _MAX_WORK:
                    raise BadExpressionError("its search would take too long")
                added = self._moved(new, by, is_backward=automaton.is_backward) & ~reached[target]
                if added:
                    reached[target] |= added
                    if not waiting[target]:
                        queue.append(target)
                    waiting[target] |= added
        return reached[automaton.end]

    def _moved(self, positions: int, by: Condition, *, is_backward: bool) -> int:
        if by is None:
            return positions
        _, where = self._known.get(id(by)) or self._known.setdefault(id(by), (by, self._where(by)))
        if not isinstance(by, CharacterSet):
            return positions & where
        return positions >> 1 & where if is_backward else (positions & where) << 1

    def _where(self, by: CharacterSet | Place | Look) -> int:
        """Return the positions at which a condition holds."""
        if isinstance(by, CharacterSet):
            return self._of_set(by)
        return self._look(by) if isinstance(by, Look) else self._place(by.kind)

    def _of_set(self, wanted: CharacterSet) -> int:
        self._work += _WORK_PER_SET * self._words
        return _bits(self._text.translate(_Digits(wanted))) & ~self._ends

    def _place(self, kind: str) -> int:
        if kind == "A":
            return (self._ends << 1 | 1) & self._all
        if kind == "Z":
            return self._ends
        if kind == "$":
            return self._ends | (self._ends >> 1 & self._of_set(LINE_END))
        word = self._of_set(WORD)
        boundary = word ^ word << 1
        return boundary if kind == "b" else self._all & ~boundary

    def _look(self, node: Look) -> int:
        # Where a part begins is found from all positions at which it may end.
        found = self._reached(Automaton(node.part, is_backward=not node.is_behind), self._all)
        return self._all & ~found if node.is_negated else found


class _Digits(dict[int, str]):
    """What `str.translate` makes of each character: 1 if it is in a set, otherwise 0."""

    def __init__(self, wanted: CharacterSet) -> None:
        super().__init__()
        self._wanted = wanted

    def __missing__(self, code: int) -> str:
        digit = self[code] = "1" if self._wanted.has(chr(code)) else "0"
        return digit


def _bits(digits: str) -> int:
    """Return an integer whose lowest bit is the first digit."""
    return int(digits[::-1], 2) if digits else 0
