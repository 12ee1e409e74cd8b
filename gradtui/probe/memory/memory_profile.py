"""What one traced step says: where memory was highest, who held it then, and how high it was in each module. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradtui.probe.autograd import OUTSIDE
from gradtui.probe.memory.allocation_log import Allocation
from gradtui.protocol.vocabulary import Holding, Phase

CURVE_POINTS = 512
_MAX_HOLDINGS = 12

_KINDS = {Phase.FORWARD: "activations", Phase.BACKWARD: "temporaries", Phase.OPTIMIZER: "temporaries"}
"""What is made in a phase and belongs to nothing that is known: a forward's result waits for backward, as a rule."""


@dataclass(frozen=True)
class PhaseMark:
    """A phase begins at this place on the curve."""

    place: int
    phase: Phase


def phase_at(marks: Sequence[PhaseMark], place: int) -> Phase:
    """The phase in which a place on the curve lies."""
    at = bisect_right([mark.place for mark in marks], place) - 1
    return marks[at].phase if at >= 0 else Phase.OTHER


def holdings(
    allocations: Iterable[Allocation], place: int, total: int, marks: Sequence[PhaseMark]
) -> tuple[Holding, ...]:
    """Who holds the bytes at a place on the curve, largest first, by category and module, and what nobody is known to hold.

    Beyond the largest so many, a category's are added up under no module.
    """
    sums: dict[tuple[str, int], list[int]] = {}
    for allocation in allocations:
        if allocation.born <= place and (allocation.died < 0 or allocation.died > place):
            kind = allocation.kind or _kind(allocation, marks)
            entry = sums.setdefault((kind, allocation.module), [0, 0])
            entry[0] += allocation.nbytes
            entry[1] += 1
    order = sorted(sums, key=lambda entry: -sums[entry][0])
    shown = {entry: sums[entry] for entry in order[:_MAX_HOLDINGS]}
    for small in order[_MAX_HOLDINGS:]:
        elsewhere = shown.setdefault((small[0], OUTSIDE), [0, 0])
        elsewhere[0] += sums[small][0]
        elsewhere[1] += sums[small][1]
    held = [Holding(kind, module, size, tensors) for (kind, module), (size, tensors) in shown.items()]
    held.sort(key=lambda holding: -holding.bytes)
    rest = total - sum(holding.bytes for holding in held)
    return (*held, Holding("other", OUTSIDE, rest, 0))


def _kind(allocation: Allocation, marks: Sequence[PhaseMark]) -> str:
    phase = phase_at(marks, allocation.born)
    if not allocation.made and phase is Phase.FORWARD:
        return "input"
    return _KINDS.get(phase, "temporaries")


def highest_by_module(curve: Sequence[int], modules: Sequence[int], parents: Sequence[int]) -> tuple[int | None, ...]:
    """The highest total while each module ran, what it contains included; None for one that did not run.

    `modules[i]` is the innermost module running at `curve[i]`, `parents[m]` the module around m (-1: none).
    """
    highest: list[int | None] = [None] * len(parents)
    own: dict[int, int] = {}
    for bytes_, module in zip(curve, modules):
        if bytes_ > own.get(module, -1):
            own[module] = bytes_
    for module, bytes_ in own.items():
        while module >= 0:
            before = highest[module]
            highest[module] = bytes_ if before is None else max(before, bytes_)
            module = parents[module]
    return tuple(highest)


def thinned(curve: Sequence[int], points: int = CURVE_POINTS) -> tuple[int, ...]:
    """The highest value of each of at most so many stretches of equal length, in order; the peak is always one of them."""
    stretch = -(-len(curve) // points)
    return tuple(max(curve[at : at + stretch]) for at in range(0, len(curve), stretch))
