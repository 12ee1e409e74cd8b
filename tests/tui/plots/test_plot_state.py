"""What the user chooses in the plots: every change returns a new state, and none leaves its axis."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradtui.tui.plots.layers import ORDERS
from gradtui.tui.plots.plot_state import MAX_PINNED, MEMORY_PHASES, SMOOTHING_LEVELS, PlotState
from gradtui.tui.plots.window import Window

WHOLE = (1.0, 101.0)

MOVES = st.lists(
    st.sampled_from(["in", "out", "back", "on", "start", "end", "whole"]) | st.floats(0, 1) | st.none(), max_size=30
)


def moved(state: PlotState, move: str | float | None, whole: tuple[float, float]) -> PlotState:
    if move is None or isinstance(move, float):
        return state.read("steps", None if move is None else whole[0] + move * (whole[1] - whole[0]), whole)
    return {
        "in": lambda: state.zoomed("steps", 0.5, whole),
        "out": lambda: state.zoomed("steps", 2.0, whole),
        "back": lambda: state.panned("steps", -1, whole),
        "on": lambda: state.panned("steps", 1, whole),
        "start": lambda: state.at_start("steps", whole),
        "end": lambda: state.at_end("steps"),
        "whole": lambda: state.whole("steps"),
    }[move]()


@given(st.floats(0, 1e6), st.floats(0, 1e7), MOVES)
@example(0.95, 63.0, ["in", 0.0, "in"])
def test_the_cursor_is_always_visible_whatever_moves(
    low: float, length: float, moves: list[str | float | None]
) -> None:
    whole, state = (low, low + length), PlotState()
    for move in moves:
        state = moved(state, move, whole)
        first, last = state.window("steps").ends(*whole)
        assert whole[0] <= first <= last <= whole[1]
        at = state.cursors.get("steps")
        assert at is None or first - 1e-6 * (1 + length) <= at <= last + 1e-6 * (1 + length)


def test_change_leaves_earlier_state_and_axes() -> None:
    before = PlotState()
    after = before.zoomed("steps", 0.5, WHOLE).read("steps", 80.0, WHOLE)
    assert before == PlotState()
    assert (after.window("layers"), after.cursors.get("layers")) == (Window(), None)
    assert after.window("steps").ends(*WHOLE) == (51.0, 101.0)


def test_zooming_keeps_the_cursor_where_it_is() -> None:
    state = PlotState().read("steps", 26.0, WHOLE).zoomed("steps", 0.5, WHOLE)
    first, last = state.window("steps").ends(*WHOLE)
    assert ((26 - first) / (last - first), last - first) == (pytest.approx(0.25), 50.0)
    assert state.zoomed("steps", 2.0, WHOLE).window("steps") == Window()


def test_window_follows_cursor_and_pan_loses_it() -> None:
    state = PlotState().zoomed("steps", 0.1, WHOLE)
    assert state.window("steps").ends(*WHOLE) == (91.0, 101.0)
    back = state.read("steps", 40.0, WHOLE)
    assert back.window("steps").ends(*WHOLE) == (37.5, 47.5)
    assert back.panned("steps", 1, WHOLE).cursors == {"steps": 40.0}
    assert back.panned("steps", 1, WHOLE).panned("steps", 1, WHOLE).panned("steps", 1, WHOLE).cursors == {}
    assert back.at_end("steps") == state
    assert back.whole("steps").window("steps") == Window()


def test_settings_go_round() -> None:
    state = PlotState(view="norm")
    levels = []
    for _ in SMOOTHING_LEVELS:
        levels.append(state.smoothing.get("norm", 0.0))
        state = state.smoother()
    assert tuple(levels) == SMOOTHING_LEVELS
    assert state.smoothing["norm"] == 0.0
    orders, phases = [], []
    for _ in range(len(ORDERS)):
        orders.append(state.order)
        state = state.reordered()
    for _ in range(len(MEMORY_PHASES)):
        phases.append(state.phases)
        state = state.with_next_phases()
    assert (tuple(orders), tuple(phases)) == (ORDERS, MEMORY_PHASES)
    assert state.rescaled().other_scales == {"norm"}
    assert state.rescaled().rescaled().other_scales == set()


def test_loss_is_smoothed_per_view() -> None:
    state = PlotState()
    assert (state.view, state.smoothing) == ("loss", {"loss": 0.6, "metrics": 0.6})
    assert state.smoother().smoothing == {"loss": 0.9, "metrics": 0.6}


def test_only_some_rows_can_be_pinned() -> None:
    state = PlotState()
    for number in range(MAX_PINNED):
        pinned = state.pin(f"layer.{number}")
        assert pinned is not None
        state = pinned
    assert state.pin("one more") is None
    without = state.pin("layer.1")
    assert without.pinned == ("layer.0", "layer.2")
