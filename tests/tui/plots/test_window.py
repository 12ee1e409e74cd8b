from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.plots.window import MIN_SPAN, Window

MOVES = st.lists(
    st.sampled_from(["in", "out", "back", "on", "start", "end"]) | st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
    max_size=40,
)


def moved(window: Window, move: str, low: float, high: float) -> Window:
    return {
        "in": lambda: window.zoomed(0.5, low, high),
        "out": lambda: window.zoomed(2.0, low, high),
        "back": lambda: window.panned(-1, low, high),
        "on": lambda: window.panned(1, low, high),
        "start": lambda: window.at_start(low, high),
        "end": window.at_end,
    }[move]()


@given(st.floats(0, 1e6), st.floats(0, 1e7), MOVES)
def test_visible_is_always_within_axis(low: float, length: float, moves: list[str | tuple[float, float]]) -> None:
    high, window = low + length, Window()
    for move in moves:
        if isinstance(move, tuple):
            # The run goes on, and what is kept of its beginning becomes less.
            low, high = low + min(move[0], high - low), high + move[1]
        else:
            window = moved(window, move, low, high)
        first, last = window.ends(low, high)
        assert low <= first <= last <= high
        assert last - first >= min(MIN_SPAN, high - low) * (1 - 1e-9)


@given(st.integers(1, 12), st.floats(10, 1e6))
def test_zoom_stays_with_newest_or_everything(times: int, length: float) -> None:
    window = Window()
    for _ in range(times):
        window = window.zoomed(0.5, 0, length)
        assert window.ends(0, length)[1] == length
        assert window.ends(0, length + 5)[1] == length + 5
    for _ in range(times + 1):
        window = window.zoomed(2.0, 0, length)
    assert window.ends(0, length) == (0, length)


def test_panning_back_holds_and_on_follows() -> None:
    window = Window().zoomed(0.5, 0, 100).panned(-1, 0, 100)
    assert window.ends(0, 100) == (37.5, 87.5)
    assert window.ends(0, 400) == (37.5, 87.5)
    on = window.panned(1, 0, 100)
    assert on.ends(0, 100) == (50, 100)
    assert on.ends(0, 120) == (70, 120)


def test_zooming_in_a_place_keeps_its_middle() -> None:
    window = Window(40.0, 60.0).zoomed(0.5, 0, 100)
    assert window.ends(0, 100) == (30, 50)


def test_the_oldest_and_the_newest() -> None:
    window = Window(20.0).at_start(0, 100)
    assert window.ends(0, 100) == (0, 20)
    assert window.at_end().ends(0, 100) == (80, 100)
