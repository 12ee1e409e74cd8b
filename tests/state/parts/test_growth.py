"""Memory that rises step after step is told from memory that wavers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import MemoryBytes, Phase
from gradtui.run.state.parts.growth import WINDOW, GrowthWatch, growth_of

MIB = 1 << 20


def ledger(step: int, other: int, gradients: int = 0) -> MemoryMeasured:
    held = MemoryBytes(10 * MIB, 0, gradients, 0, 0, other, 10 * MIB + gradients + other)
    return MemoryMeasured(float(step), step, Phase.OPTIMIZER, held, None, False, True)


def growths(ledgers: list[MemoryMeasured]) -> list[tuple[int, str]]:
    watch = GrowthWatch()
    found = [watch.add(each) for each in ledgers]
    return [(growth.step, growth.category) for growth in found if growth is not None]


def test_steady_rise_is_told_once_with_rate() -> None:
    ledgers = [ledger(step, other=step * MIB // 4) for step in range(4, 4 + WINDOW)]
    growth = growth_of(ledgers)
    assert growth is not None
    assert (growth.category, growth.bytes, growth.category_bytes) == ("other", 23 * MIB // 4, 23 * MIB // 4)
    assert (growth.since_step, growth.step) == (4, 3 + WINDOW)
    assert growths(ledgers) == [(3 + WINDOW, "other")]


def test_gradients_that_pile_up_are_named() -> None:
    ledgers = [ledger(step, other=MIB + step % 3, gradients=step * MIB) for step in range(4, 4 + WINDOW)]
    assert growths(ledgers) == [(3 + WINDOW, "gradients")]


def test_equal_further_rise_is_told_again() -> None:
    ledgers = [ledger(step, other=step * MIB) for step in range(4, 200)]
    steps = [step for step, _ in growths(ledgers)]
    assert steps == [27, 50, 73, 96, 119, 142, 165, 188]


@given(st.lists(st.integers(-MIB // 2 + 1, MIB // 2 - 1), min_size=WINDOW, max_size=4 * WINDOW))
def test_wavering_is_no_growth(noise: list[int]) -> None:
    assert growths([ledger(4 + at, other=5 * MIB + waver) for at, waver in enumerate(noise)]) == []


def test_first_optimizer_state_is_no_growth() -> None:
    sizes = [0, 0, 30 * MIB, 60 * MIB] + [60 * MIB] * 100
    assert growths([ledger(step, other=size) for step, size in enumerate(sizes)]) == []


def test_one_jump_is_no_growth() -> None:
    assert growths([ledger(step, other=(step > 40) * 50 * MIB) for step in range(4, 120)]) == []


def test_a_saw_tooth_is_no_growth() -> None:
    # A cache that is emptied every ten steps.
    assert growths([ledger(step, other=(step % 10) * MIB) for step in range(4, 200)]) == []


def test_growth_that_levels_off_is_none() -> None:
    # The first steps are measured more often than those after them.
    steps = [*range(4, 24), *range(200, 6000, 200)]
    filled = [ledger(step, other=int(2.5 * MIB * min(1.0, step / 300))) for step in steps]
    assert growths(filled) == []
    kept = [ledger(step, other=step * MIB // 400) for step in steps]
    assert growths(kept) != []


def test_without_a_total_nothing_can_be_told() -> None:
    held = MemoryBytes(1, 0, 0, 0, 0, None, None)
    watch = GrowthWatch()
    assert all(
        watch.add(MemoryMeasured(0.0, step, Phase.OPTIMIZER, held, None, False, True)) is None for step in range(99)
    )
