from __future__ import annotations

import pytest

from gradtui.tui.app.redraw_scheduler import OFTEN_SECONDS, RedrawScheduler


class Clocks:
    """Two clocks that a test turns."""

    def __init__(self) -> None:
        self.wall_time = 100.0
        self.cpu_time = 5.0

    def redraws(self, budget: float = 0.01, tick: float = 0.25, **intervals: float) -> RedrawScheduler:
        redraws = RedrawScheduler(budget, tick, wall=lambda: self.wall_time, cpu=lambda: self.cpu_time)
        for name, interval in intervals.items():
            redraws.add(name, interval)
        return redraws

    def run(
        self, redraws: RedrawScheduler, seconds: float, costs: dict[str | None, float], touch: bool = False
    ) -> list[str]:
        """Tick at fixed times; every tick costs `costs[None]`, and a part that is drawn its own cost on top."""
        drawn: list[str] = []
        for _ in range(round(seconds / 0.25)):
            self.wall_time += 0.25
            if touch:
                redraws.touched()
            if not redraws.begin():
                continue
            self.cpu_time += costs[None]
            part = redraws.choose(name for name in costs if name is not None)
            if part is not None:
                drawn.append(part)
                self.cpu_time += costs[part]
        return drawn


def test_cheap_parts_are_drawn_at_their_own_pace() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(tree=1.0, output=0.5)
    drawn = clocks.run(redraws, 20, {None: 0.0, "tree": 0.0001, "output": 0.0001})
    assert drawn.count("tree") == pytest.approx(20, abs=2)
    assert drawn.count("output") == pytest.approx(40, abs=3)
    assert redraws.stretch == 1.0


@pytest.mark.parametrize("cost", [0.003, 0.01, 0.05])
def test_dear_parts_are_drawn_less_often_so_that_the_budget_holds(cost: float) -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=0.01, tree=1.0, memory=1.0, gradients=2.0)
    costs = {None: 0.0005, "tree": cost, "memory": cost, "gradients": 2 * cost}
    clocks.run(redraws, 60, costs)
    before = clocks.cpu_time
    drawn = clocks.run(redraws, 600, costs)
    assert (clocks.cpu_time - before) / 600 <= 0.0115
    assert set(drawn) == {"tree", "memory", "gradients"}


def test_every_part_gets_its_turn() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=0.001, tree=1.0, memory=1.0, output=0.5)
    drawn = clocks.run(redraws, 300, {None: 0.001, "tree": 0.02, "memory": 0.001, "output": 0.001})
    assert min(drawn.count("tree"), drawn.count("memory"), drawn.count("output")) >= 3


def test_without_a_budget_nothing_is_stretched() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=0.0, tree=1.0)
    drawn = clocks.run(redraws, 20, {None: 0.01, "tree": 0.2})
    assert len(drawn) == pytest.approx(20, abs=2)


def test_one_dear_drawing_does_not_slow_the_screen_for_long() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=0.01, tree=1.0)
    costs: dict[str | None, float] = {None: 0.0, "tree": 0.001}
    clocks.run(redraws, 20, costs)
    clocks.run(redraws, 1, {None: 0.0, "tree": 2.0})
    clocks.run(redraws, 20, costs)
    assert len(clocks.run(redraws, 20, costs)) >= 18


def test_what_the_person_does_is_shown_but_charged_to_no_part() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(tree=1.0)
    clocks.run(redraws, 20, {None: 0.0, "tree": 0.05}, touch=True)
    assert redraws.stretch == 1.0
    assert redraws.share is not None
    assert redraws.share > 0.03


def test_the_share_is_the_measured_one() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=1.0, tree=1.0)
    assert redraws.share is None
    clocks.run(redraws, 60, {None: 0.005, "tree": 0.0})
    assert redraws.share == pytest.approx(0.02, rel=0.05)


def test_hurrying_makes_a_part_due_at_the_next_look_however_slow_the_screen_is() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(budget=0.001, tree=1.0, gradients=2.0)
    clocks.run(redraws, 60, {None: 0.004, "tree": 0.02, "gradients": 0.02})
    assert redraws.stretch > 5
    redraws.expedite("gradients")
    clocks.wall_time += 0.25
    assert redraws.begin()
    assert redraws.choose(["tree", "gradients"]) == "gradients"


def test_an_answer_is_looked_for_at_every_tick_for_a_while_and_nothing_is_drawn_more_often_for_it() -> None:
    clocks = Clocks()
    costs = {None: 0.004, "tree": 0.02}
    redraws = clocks.redraws(budget=0.001, tree=1.0)
    clocks.run(redraws, 60, costs)
    assert redraws.delay > 1.0
    redraws.poll_often()
    looks, drawn = 0, 0
    for _ in range(round(OFTEN_SECONDS / 0.25)):
        clocks.wall_time += 0.25
        looks += redraws.begin()
        drawn += redraws.choose(["tree"]) is not None
    assert looks == OFTEN_SECONDS / 0.25
    assert drawn <= 1
    clocks.wall_time += 0.25
    redraws.begin()
    clocks.wall_time += 0.25
    assert not redraws.begin()


def test_hidden_parts_are_never_chosen() -> None:
    clocks = Clocks()
    redraws = clocks.redraws(tree=1.0, memory=1.0)
    assert set(clocks.run(redraws, 10, {None: 0.0, "tree": 0.001})) == {"tree"}
