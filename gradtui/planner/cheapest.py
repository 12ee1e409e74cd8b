"""Which blocks to checkpoint so that a step fits into given memory with the least recomputation: exact. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

from gradtui.dataclass import dataclass


@dataclass(frozen=True)
class Stretch:
    """A part of the forward, in the order of its execution. Bytes are relative to what is alive when it begins."""

    kept: int
    """Bytes that stay alive after it."""
    forward: int
    """The most bytes that are alive while it runs."""
    backward: int
    """The most bytes that are alive while backward runs through it."""


@dataclass(frozen=True)
class Unit:
    """A stretch as it is, and as it would be if its block were checkpointed."""

    plain: Stretch
    checkpointed: Stretch | None = None
    """None if there is no such choice."""
    cost: int = 0
    """Operations that checkpointing adds."""


@dataclass(frozen=True)
class Limits:
    """The most bytes that may be alive, on the scale of the stretches: the first one begins with 0."""

    forward: int
    end: int
    """When the forward is over."""
    backward: int


_State = tuple[int, int, int, "_Chosen"]
"""Bytes that are alive, the cost so far, the number of checkpointed units, and which these are."""
_Chosen = tuple[int, "_Chosen"] | None
"""The last checkpointed unit and those before it."""


def cheapest(units: Sequence[Unit], limits: Limits) -> frozenset[int] | None:
    """Return the units to checkpoint at the least cost such that all limits hold; None if there is no such choice.

    Of equally cheap choices it returns one with the fewest units. While unit i runs, forward or backward, what the units
    before it keep is alive, and nothing else of them. So after each unit a choice of the units before matters only by the
    bytes that it keeps and by its cost, and one that keeps more bytes at no less cost is dropped (dynamic programming). With
    n equal units at most n + 1 choices remain.
    """
    states: list[_State] = [(0, 0, 0, None)]
    for index, unit in enumerate(units):
        plain = _after(states, unit.plain, limits, 0, None)
        taken = _after(states, unit.checkpointed, limits, unit.cost, index) if unit.checkpointed is not None else ()
        states = list(_best(merge(plain, taken, key=_key)))
        if not states:
            return None
    left = [state for state in states if state[0] <= limits.end]
    return frozenset(_listed(min(left, key=lambda state: (state[1], state[2]))[3])) if left else None


def _after(
    states: Sequence[_State], stretch: Stretch, limits: Limits, cost: int, index: int | None
) -> Iterator[_State]:
    most = min(limits.forward - stretch.forward, limits.backward - stretch.backward)
    for alive, spent, count, chosen in states:
        if alive > most:
            # The states are in the order of their bytes.
            return
        if index is None:
            yield alive + stretch.kept, spent, count, chosen
        else:
            yield alive + stretch.kept, spent + cost, count + 1, (index, chosen)


def _key(state: _State) -> tuple[int, int, int]:
    return state[:3]


def _best(states: Iterator[_State]) -> Iterator[_State]:
    """Yield the states that no other one beats, in the order of their bytes."""
    least: tuple[int, int] | None = None
    for state in states:
        if least is None or (state[1], state[2]) < least:
            least = state[1], state[2]
            yield state


def _listed(chosen: _Chosen) -> Iterator[int]:
    while chosen is not None:
        index, chosen = chosen
        yield index
