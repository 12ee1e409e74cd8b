"""Compute the results of a profiled step: the peak, who held memory then, and the peak of each module. Pure functions."""

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
"""Default category of what is made in a phase and belongs to nothing known. A forward's result usually waits for backward."""


@dataclass(frozen=True)
class PhaseMark:
    """The index on the curve at which a phase begins."""

    index: int
    phase: Phase


def phase_at(marks: Sequence[PhaseMark], index: int) -> Phase:
    """Return the phase that contains an index of the curve."""
    at = bisect_right([mark.index for mark in marks], index) - 1
    return marks[at].phase if at >= 0 else Phase.OTHER


def holdings(
    allocations: Iterable[Allocation], index: int, total: int, marks: Sequence[PhaseMark]
) -> tuple[Holding, ...]:
    """Return who holds the bytes at an index of the curve, by category and module, largest first, then the unexplained rest.

    Beyond the `_MAX_HOLDINGS` largest, the bytes of a category are added up under no module.
    """
    sums: dict[tuple[str, int], list[int]] = {}
    for allocation in allocations:
        if allocation.born <= index and (allocation.died < 0 or allocation.died > index):
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
    """Return the highest total while each module or its submodules ran; None for a module that did not run.

    `modules[i]` is the innermost module running at `curve[i]`, `parents[m]` the parent of module m (-1: none).
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
    """Return the maximum of each of at most `points` stretches of equal length, in order. The peak is always one of them."""
    stretch = -(-len(curve) // points)
    return tuple(max(curve[at : at + stretch]) for at in range(0, len(curve), stretch))
