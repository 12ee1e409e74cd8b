"""The cheapest blocks to checkpoint, against all choices there are."""

from __future__ import annotations

import random
from itertools import product
from time import thread_time

from hypothesis import given
from hypothesis import strategies as st

from gradtui.planner.cheapest import Limits, Stretch, Unit, cheapest

SIZE = st.integers(0, 12)
STRETCH = st.builds(Stretch, SIZE, SIZE, SIZE)
UNIT = st.builds(Unit, STRETCH, st.none() | STRETCH, st.integers(0, 9))


def cost_of(units: list[Unit], chosen: tuple[bool, ...], limits: Limits) -> tuple[int, int] | None:
    """Return the cost and the number of a choice, None if it breaks a limit or checkpoints what cannot be."""
    alive = 0
    for unit, is_chosen in zip(units, chosen):
        stretch = unit.checkpointed if is_chosen else unit.plain
        if stretch is None or alive + stretch.forward > limits.forward or alive + stretch.backward > limits.backward:
            return None
        alive += stretch.kept
    if alive > limits.end:
        return None
    return sum(unit.cost for unit, is_chosen in zip(units, chosen) if is_chosen), sum(chosen)


@given(st.lists(UNIT, max_size=7), st.builds(Limits, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60)))
def test_it_is_the_best_of_all_choices(units: list[Unit], limits: Limits) -> None:
    costs = [cost_of(units, chosen, limits) for chosen in product((False, True), repeat=len(units))]
    possible = [cost for cost in costs if cost is not None]
    found = cheapest(units, limits)
    if found is None:
        assert not possible
    else:
        assert cost_of(units, tuple(index in found for index in range(len(units))), limits) == min(possible)


def blocks(count: int, seed: int) -> list[Unit]:
    """Return blocks of a deep network that all differ, whose sizes are those of real ones."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        kept, taken = chance.randrange(50 << 20, 200 << 20), chance.randrange(1 << 20, 8 << 20)
        transient = chance.randrange(1 << 20, 30 << 20)
        found.append(
            Unit(
                Stretch(kept, kept + transient, kept + transient),
                Stretch(taken, taken + transient, taken + kept + transient),
                chance.randrange(10**9, 10**11),
            )
        )
    return found


def test_best_of_all_choices_of_twelve_blocks() -> None:
    for seed in range(3):
        units = blocks(12, seed)
        most = sum(unit.plain.kept for unit in units)
        for share in (0.2, 0.5, 0.8):
            limits = Limits(*[int(share * most) + (100 << 20)] * 3)
            costs = (cost_of(units, chosen, limits) for chosen in product((False, True), repeat=12))
            found = cheapest(units, limits)
            assert found is not None
            chosen = tuple(index in found for index in range(12))
            assert cost_of(units, chosen, limits) == min(cost for cost in costs if cost is not None)


def test_sixty_four_different_blocks_take_little_time() -> None:
    units = blocks(64, 0)
    most = sum(unit.plain.kept for unit in units)
    for share in (0.1, 0.5, 0.9):
        began = thread_time()
        assert cheapest(units, Limits(*[int(share * most) + (300 << 20)] * 3))
        assert thread_time() - began < 0.25
