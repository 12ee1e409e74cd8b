"""When a sorted list is sorted again: every few seconds, as long as the user does not move the cursor."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from helpers.app_session import session
from helpers.fakes import Node, found

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.tui.tree.sorting import SortedOrder
from gradtui.tui.tree.tree_totals import TreeTotals

NAMES = "abcdefghijklmnopqrstuvwxyz"
MODEL = found(Node("Net", "Net", tuple((name, (2,)) for name in NAMES)))
REST_S = 2.0


@dataclass
class Clock:
    now: float = 0.0
    cost: float = 0.0
    """Seconds that pass from one reading to the next."""

    def __call__(self) -> float:
        self.now += self.cost
        return self.now


def norms(step: int, *largest: str) -> ev.GradientsMeasured:
    """The largest norms are those of these parameters, in this order."""
    order = [*largest, *(name for name in NAMES if name not in largest)]
    values = tuple(float(len(order) - order.index(name)) for name in NAMES)
    return ev.GradientsMeasured(float(step), step, 1.0, None, values)


class Sorted:
    """A list by norm on a clock of its own."""

    def __init__(self, cost: float = 0.0) -> None:
        self.state, self.clock = RunState(), Clock(cost=cost)
        apply(self.state, MODEL)
        apply(self.state, norms(1, "c"))
        self.totals = TreeTotals(self.state.tree, 8)
        self.totals.update(self.state)
        self.order = SortedOrder(self.clock)
        self.order.rows(self.state.tree, self.totals, "norm")

    def measure(self, step: int, *largest: str) -> None:
        apply(self.state, norms(step, *largest))
        self.totals.update(self.state)

    def first(self) -> str | None:
        """Return the first parameter of a new order; None if there is none."""
        rows = self.order.newer_rows(self.state.tree, self.totals)
        return None if rows is None else NAMES[~rows[0]]


def test_the_order_follows_the_values_every_two_seconds() -> None:
    shown = Sorted()
    assert shown.order.step == 1
    shown.measure(2, "d")
    shown.clock.now = REST_S - 0.1
    assert shown.first() is None
    shown.clock.now = REST_S
    assert (shown.first(), shown.order.step) == ("d", 2)
    shown.measure(3, "e")
    assert shown.first() is None
    shown.clock.now = 2 * REST_S
    assert shown.first() == "e"


def test_rows_stay_while_the_user_moves_the_cursor() -> None:
    shown = Sorted()
    shown.measure(2, "d")
    for tenth in range(100):
        shown.clock.now = tenth / 10
        shown.order.touched()
        assert shown.first() is None
    assert shown.order.step == 1, "the order says of which step it is"
    shown.clock.now += REST_S
    assert (shown.first(), shown.order.step) == ("d", 2)


def test_unchanged_order_moves_nothing() -> None:
    shown = Sorted()
    shown.measure(2, "c")
    shown.clock.now = REST_S
    assert (shown.first(), shown.order.step) == (None, 2)


def test_nothing_is_sorted_without_measurement() -> None:
    shown = Sorted()
    readings = shown.clock.now = 1e6
    assert shown.first() is None
    assert shown.clock.now == readings


def test_a_costly_order_is_made_more_rarely() -> None:
    shown = Sorted(cost=0.5)
    shown.clock.cost = 0.0
    shown.measure(2, "d")
    shown.clock.now = 49.0
    assert shown.first() is None, "half a second is a hundredth of 50"
    shown.clock.now = 52.0
    assert shown.first() == "d"


@pytest.mark.parametrize(("column", "step"), [("norm", 1), ("ratio", None), ("saved", None), ("bytes", None)])
def test_order_is_of_step_of_its_values(column: str, step: int | None) -> None:
    shown = Sorted()
    shown.order.rows(shown.state.tree, shown.totals, column)
    assert shown.order.step == step


async def test_cursor_and_view_stay_in_place() -> None:
    async with session(events=[MODEL, norms(1, "c")]) as run:
        tree, clock = run.dashboard.tree_view, Clock()
        tree.sorted = SortedOrder(clock)
        await run.go_to("c")
        await run.press("s", "home")
        assert (run.row, tree.cursor, tree.top) == ("c", 0, 0)
        assert "sorted by norm at step 1 " in str(run.dashboard.pane.border_subtitle)
        clock.now += REST_S
        await run.put(norms(2, "d", "e", "c"))
        assert [tree.rows.path(row) for row in tree.rows.rows[:3]] == ["d", "e", "c"]
        assert (run.row, tree.cursor, tree.top) == ("c", 2, 0)
        assert "sorted by norm at step 2 " in str(run.dashboard.pane.border_subtitle)
        # Far below what is in view: the view follows.
        height = tree.content_size.height
        clock.now += REST_S
        await run.put(norms(3, *(name for name in NAMES if name != "c")))
        assert (run.row, tree.cursor) == ("c", len(NAMES) - 1)
        assert tree.top == len(NAMES) - height > 0


async def test_view_that_user_scrolled_away_from_cursor_stays() -> None:
    async with session((80, 24), events=[MODEL, norms(1, "c")]) as run:
        tree, clock = run.dashboard.tree_view, Clock()
        tree.sorted = SortedOrder(clock)
        await run.press("s", "home")
        tree.scroll_lines(100)
        top = tree.top
        assert top > 0
        clock.now += REST_S
        await run.put(norms(2, *NAMES[1:]))
        assert tree.rows.path(tree.rows.rows[0]) == NAMES[1]
        assert tree.top == top


async def test_rows_do_not_move_while_the_cursor_does() -> None:
    async with session(events=[MODEL, norms(1, "c")]) as run:
        tree, clock = run.dashboard.tree_view, Clock()
        tree.sorted = SortedOrder(clock)
        await run.press("s")
        clock.now += REST_S
        await run.press("down")
        await run.put(norms(2, "d"))
        assert tree.rows.path(tree.rows.rows[0]) == "c"
        assert "sorted by norm at step 1 " in str(run.dashboard.pane.border_subtitle)
