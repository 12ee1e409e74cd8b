"""Requests for the tests of plotting: values are anything that a float can be, and large integers."""

from __future__ import annotations

import math
import select
from collections.abc import Callable
from time import monotonic

from helpers.lines import texts
from hypothesis import strategies as st
from rich.cells import cell_len

from gradtui.tui.charts.plot_client import PlotClient
from gradtui.tui.charts.request import Picture, PlotRequest, Series, VerticalLine

HUGE_INTEGERS = st.sampled_from([2**63, 2**53 + 1])
EDGES = st.sampled_from(
    [5e-324, -5e-324, 2.3e-308, 1.7e308, -1.7e308, 1e100, 1e-100, 0.0, -0.0, math.nan, math.inf, -math.inf]
)
NUMBERS = st.one_of(st.floats(), EDGES, HUGE_INTEGERS, st.integers(-3, 3), st.booleans())
STEPS = st.one_of(st.integers(0, 60), st.integers(2**52, 2**52 + 40), st.floats(-1e100, 1e100))


VERTICALS = st.builds(
    VerticalLine, STEPS, st.sampled_from("■►η"), st.just("red"), st.sampled_from(["", "lr", "blocks.7.mlp"])
)

_ASK_AGAIN_S = 0.02


def series_of(numbers: st.SearchStrategy[float | None], steps: st.SearchStrategy[float]) -> st.SearchStrategy[Series]:
    """Series with ascending steps, some of them repeated."""

    def series(label: str, color: str, points: list[tuple[float, float | None]], stride: float | None) -> Series:
        return Series(label, color, tuple(sorted(x for x, _ in points)), tuple(y for _, y in points), stride)

    labels, colors = st.sampled_from(["", "global", "ctx", "x" * 80]), st.sampled_from(["red", "#00ff00", "axis", ""])
    points = st.lists(st.tuples(steps, numbers), max_size=40)
    return st.builds(series, labels, colors, points, st.sampled_from([None, 1.0, 3.0]))


def requests(
    numbers: st.SearchStrategy[float | None] = st.one_of(NUMBERS, st.none()),  # noqa: B008
    steps: st.SearchStrategy[float] = STEPS,
    width: st.SearchStrategy[int] = st.integers(-1, 130),  # noqa: B008
    height: st.SearchStrategy[int] = st.integers(-1, 40),  # noqa: B008
) -> st.SearchStrategy[PlotRequest]:
    """Requests of any size and setting."""
    return st.builds(
        PlotRequest,
        width=width,
        height=height,
        series=st.lists(series_of(numbers, steps), max_size=4).map(tuple),
        y_scale=st.sampled_from(["linear", "log"]),
        x_label=st.sampled_from(["step", "", "layer"]),
        y_label=st.sampled_from(["", "loss", "‖grad‖", "% of elements"]),
        unit=st.sampled_from(["", "bytes"]),
        from_zero=st.booleans(),
        x_limits=st.none() | st.tuples(STEPS, STEPS).map(sorted).map(tuple),
        above=st.lists(series_of(numbers, steps), max_size=2).map(tuple),
        verticals=st.lists(VERTICALS, max_size=6).map(tuple),
    )


def curve(*ys: float | None, label: str = "global", color: str = "cyan", first: int = 0) -> Series:
    """A series of consecutive steps."""
    return Series(label, color, tuple(range(first, first + len(ys))), ys)


def noisy(count: int) -> tuple[float, ...]:
    """A decaying norm with noise, the same each time."""
    return tuple(
        math.exp(-i / 120) * (1 + 0.8 * math.sin(i * 12.9898) * math.sin(i * 78.233)) + 0.01 for i in range(count)
    )


def assert_measures(picture: Picture, request: PlotRequest) -> None:
    """The picture has exactly the cells that were asked for."""
    assert len(picture.lines) == max(request.height, 0)
    assert all(cell_len(text) == max(request.width, 0) for text in texts(picture.lines))


def wait_for(condition: Callable[[], bool], client: PlotClient | None = None, seconds: float = 30.0) -> bool:
    """Ask whenever the server of `client` has answered or ended, until it holds; whether it did in time."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        connection = client.connection if client is not None else None
        # What no socket tells of is asked for again as well.
        select.select([] if connection is None else [connection], [], [], _ASK_AGAIN_S)
    return True
