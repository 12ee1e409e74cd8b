from __future__ import annotations

from itertools import pairwise

import pytest

from gradtui.tui.app.redraw_scheduler import MAX_DELAY, MAX_LOAD, RedrawScheduler

TICK = 0.25
NARROW = ("tree", "gradients")
WIDE = ("tree", "gradients", "memory", "why", "changes", "output", "ranks", "events")


class Clocks:
    """Two clocks that a test turns, and what was drawn when."""

    def __init__(self, rate: float = 1 / TICK) -> None:
        self.wall_time, self.cpu_time = 100.0, 5.0
        self.redraws = RedrawScheduler(rate, wall=lambda: self.wall_time, cpu=lambda: self.cpu_time)
        self.ticks: list[tuple[float, list[str]]] = []
        """When each tick was that drew, and the parts."""

    def run(
        self,
        seconds: float,
        visible: tuple[str, ...] = WIDE,
        *,
        cost: float = 0.0,
        idle: float = 0.0,
        change: bool = True,
        touch: bool = False,
        late: float = 0.0,
    ) -> None:
        """Tick at fixed times, every other one `late` by so many seconds, while all data change all the time.

        Every tick that draws costs `idle` CPU seconds, and `cost` for each part.
        """
        began = self.wall_time
        for index in range(1, round(seconds / TICK) + 1):
            self.wall_time = began + index * TICK + (late if index % 2 else 0.0)
            if touch:
                self.redraws.touched()
            if not self.redraws.begin():
                continue
            if change:
                self.redraws.changed()
            drawn = self.redraws.choose(visible)
            self.ticks.append((self.wall_time, drawn))
            self.cpu_time += idle + cost * len(drawn)

    def intervals(self, name: str) -> list[float]:
        """Seconds between the drawings of a part."""
        times = [at for at, drawn in self.ticks if name in drawn]
        return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize("visible", [NARROW, WIDE[:5], WIDE])
@pytest.mark.parametrize("late", [0.0, 0.1])
def test_no_part_is_ever_older_than_a_second(visible: tuple[str, ...], late: float) -> None:
    clocks = Clocks()
    clocks.run(60, visible, cost=0.001, late=late)
    assert clocks.redraws.delay == TICK
    for name in visible:
        assert len(clocks.intervals(name)) >= 55
        assert max(clocks.intervals(name)) <= (0.5 if name == "output" else 1.0)


def test_the_parts_are_spread_over_the_ticks() -> None:
    clocks = Clocks()
    visible = tuple(name for name in WIDE if name != "output")
    clocks.run(60, visible)
    counts = [len(drawn) for _, drawn in clocks.ticks[3:]]
    assert max(counts) - min(counts) <= 1
    # No part is drawn more often than needed.
    assert sum(counts) == pytest.approx(len(counts) * len(visible) / 3, rel=0.02)


def test_change_after_pause_is_drawn_soon() -> None:
    clocks = Clocks()
    clocks.run(10, change=False)
    assert {name for _, drawn in clocks.ticks for name in drawn} == set(WIDE), "at first each part is new"
    clocks.ticks.clear()
    clocks.run(10, change=False)
    assert not any(drawn for _, drawn in clocks.ticks), "a part is drawn once after a change"
    clocks.ticks.clear()
    clocks.redraws.changed()
    clocks.run(1, change=False)
    assert clocks.ticks[0][1], "the first of them at once"
    drawn = [name for _, names in clocks.ticks[:3] for name in names]
    assert sorted(drawn) == sorted(WIDE)


def test_only_what_has_changed_is_drawn() -> None:
    clocks = Clocks()
    clocks.run(10, change=False)
    clocks.ticks.clear()
    clocks.redraws.changed("memory")
    clocks.run(5, change=False)
    assert [drawn for _, drawn in clocks.ticks if drawn] == [["memory"]]


def test_a_part_that_becomes_visible_has_changed() -> None:
    clocks = Clocks()
    clocks.run(5, NARROW, change=False)
    clocks.run(1, ("plots",), change=False)
    assert clocks.ticks[-4][1] == ["plots"]
    clocks.ticks.clear()
    clocks.run(1, (*NARROW, "why"), change=False)
    assert {name for _, drawn in clocks.ticks for name in drawn} == {*NARROW, "why"}


@pytest.mark.parametrize("cost", [0.004, 0.008, 0.015, 0.2])
def test_overload_leaves_out_ticks_for_one_second(cost: float) -> None:
    clocks = Clocks()
    clocks.run(30, cost=cost, idle=0.001)
    clocks.ticks.clear()
    before = clocks.cpu_time
    clocks.run(120, cost=cost, idle=0.001)
    load, delay = (clocks.cpu_time - before) / 120, clocks.redraws.delay
    assert delay > TICK
    assert load <= MAX_LOAD or delay == MAX_DELAY
    for name in WIDE:
        assert max(clocks.intervals(name)) <= MAX_DELAY


def test_a_load_below_the_limit_leaves_out_none() -> None:
    clocks = Clocks()
    clocks.run(60, cost=0.002, idle=0.001)
    assert clocks.redraws.delay == TICK
    assert len(clocks.ticks) == 60 / TICK


def test_the_rate_returns_with_the_load() -> None:
    clocks = Clocks()
    clocks.run(30, cost=0.05)
    assert clocks.redraws.delay == MAX_DELAY
    clocks.run(30, cost=0.0005)
    assert clocks.redraws.delay == TICK


def test_one_expensive_tick_lowers_rate_briefly() -> None:
    clocks = Clocks()
    clocks.run(30, cost=0.0005)
    clocks.run(TICK, cost=0.0005, idle=3.0)
    clocks.run(5, cost=0.0005)
    assert clocks.redraws.delay == TICK


def test_user_acts_count_but_lower_no_rate() -> None:
    clocks = Clocks()
    clocks.run(30, cost=0.01, touch=True)
    assert clocks.redraws.delay == TICK
    assert clocks.redraws.share > MAX_LOAD


def test_after_key_next_tick_is_not_left_out() -> None:
    clocks = Clocks()
    clocks.run(30, cost=0.05)
    assert clocks.redraws.delay == MAX_DELAY
    clocks.ticks.clear()
    clocks.run(3 * TICK, cost=0.05)
    assert clocks.ticks == []
    clocks.run(TICK, cost=0.05)
    clocks.run(TICK, cost=0.05, touch=True)
    assert len(clocks.ticks) == 2


def test_what_is_done_before_choice_is_no_drawing() -> None:
    clocks = Clocks()
    for _ in range(100):
        clocks.wall_time += TICK
        assert clocks.redraws.begin()
        clocks.cpu_time += 0.1  # events are applied
        clocks.redraws.choose(NARROW)
    assert clocks.redraws.share == pytest.approx(0.4)


def test_the_share_is_the_measured_one() -> None:
    clocks = Clocks()
    assert clocks.redraws.share is None
    clocks.run(60, NARROW, idle=0.005, change=False)
    assert clocks.redraws.share == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, 10.0, 30.0])
def test_other_rates(rate: float) -> None:
    clocks = Clocks(rate)
    for _ in range(100):
        clocks.wall_time += 1 / rate
        assert clocks.redraws.begin()
        clocks.redraws.changed()
        clocks.ticks.append((clocks.wall_time, clocks.redraws.choose(WIDE)))
    for name in WIDE:
        assert max(clocks.intervals(name)) <= max(1 / rate, 0.5 if name == "output" else 1.0) + 1e-6
