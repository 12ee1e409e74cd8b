"""Divide a recorded step into blocks and what is between them, and measure each with and without checkpoints. Any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.planner.cheapest import Stretch, Unit
from gradtui.planner.replay import Peaks, Plan, Replay
from gradtui.protocol.operations import OperationsRecorded


@dataclass(frozen=True)
class Places:
    """The parts of a step, in their order."""

    of_operation: tuple[int, ...]
    """By operation: the number of its part."""
    blocks: tuple[int, ...]
    """By part: the module whose only call it is, -1 for what is between such calls."""
    of_call: tuple[int, ...]
    """By call: the part that contains it, -1 if none does."""


def places_of(recorded: OperationsRecorded, blocks: Collection[int]) -> Places:
    """Return the parts of a step. A block that runs several times is no part."""
    times = Counter(call.module for call in recorded.calls)
    around: list[int] = []
    """By call: the call of a block around it, or the call itself; -1 if there is none."""
    for index, (module, caller) in enumerate(recorded.calls):
        outer = around[caller] if caller >= 0 else -1
        around.append(outer if outer >= 0 else index if module in blocks and times[module] == 1 else -1)
    of_operation: list[int] = []
    found: list[int] = []
    of_block: dict[int, int] = {}
    before = -2
    for operation in recorded.operations:
        here = around[operation.call] if operation.call >= 0 else -1
        if here != before:
            found.append(recorded.calls[here].module if here >= 0 else -1)
            of_block[here] = len(found) - 1
            before = here
        of_operation.append(len(found) - 1)
    of_call = tuple(of_block.get(call, -1) if call >= 0 else -1 for call in around)
    return Places(tuple(of_operation), tuple(found), of_call)


def units_of(replay: Replay, places: Places, plan: Plan, *, has_gradients: bool = False) -> list[Unit] | None:
    """Return each part as it is under a plan and, if it is a block, as it would be checkpointed. None if backward fails.

    With `has_gradients`, backward adds to gradients that are there when it begins.
    """
    blocks = frozenset(block for block in places.blocks if block >= 0)
    without = replace(plan, checkpointed=plan.checkpointed - blocks)
    within = replace(plan, checkpointed=plan.checkpointed | blocks)
    plain, checkpointed = (
        replay.peaks(each, places.of_operation, has_gradients=has_gradients) for each in (without, within)
    )
    if plain is None or checkpointed is None:
        return None
    costs = _work(replay, places, within)
    costs.subtract(_work(replay, places, without))
    stretches = list(zip(_stretches(plain, len(places.blocks)), _stretches(checkpointed, len(places.blocks))))
    return [
        Unit(one, other if block >= 0 else None, costs[place])
        for place, (block, (one, other)) in enumerate(zip(places.blocks, stretches))
    ]


def _work(replay: Replay, places: Places, plan: Plan) -> Counter[int]:
    """Return the work of each part that is a block."""
    work: Counter[int] = Counter()
    for call, each in replay.under(plan).work_by_call.items():
        if call >= 0 and places.of_call[call] >= 0:
            work[places.of_call[call]] += each.total
    return work


def _stretches(peaks: Peaks, count: int) -> Sequence[Stretch]:
    levels = [peaks.levels[place] for place in range(count)]
    return [
        Stretch(after - level, peaks.forward_at.get(place, level) - level, peaks.backward_at.get(place, level) - level)
        for place, (level, after) in enumerate(zip(levels, [*levels[1:], peaks.begin]))
    ]
