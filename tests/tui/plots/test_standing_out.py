from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.plots.curves import MAX_POINTS, series_of, standing_out
from gradtui.tui.plots.options import Curve

values = st.none() | st.floats() | st.sampled_from([0.0, 1.0, -1.0])


def outstanding(points: list[float | None]) -> set[str]:
    return {str(value) for value in points if value is None or not math.isfinite(value)}


@given(st.lists(values, min_size=1, max_size=60), st.integers(1, 20))
def test_pieces_keep_extremes_and_no_numbers(points: list[float | None], pieces: int) -> None:
    indices = standing_out(points, pieces)
    assert indices == sorted(set(indices))
    size = math.ceil(len(points) / pieces)
    for start in range(0, len(points), size):
        piece = points[start : start + size]
        kept = [points[index] for index in indices if start <= index < start + size]
        assert outstanding(kept) == outstanding(piece)
        for wanted in (-math.inf, 0.0):
            before, after = ([v for v in some if v is not None and wanted < v < math.inf] for some in (piece, kept))
            assert (min(before, default=None), max(before, default=None)) == (
                min(after, default=None), max(after, default=None),
            )  # fmt: skip


@pytest.mark.parametrize("count", [MAX_POINTS, 50_000])
def test_long_curve_is_drawn_from_few_thousand_points(count: int) -> None:
    steps = [float(step) for step in range(1, count + 1)]
    curve = Curve("", "curve-1", steps, [step % 97 + 1 for step in steps])
    (series,) = series_of(curve, steps[0], steps[-1], 0.0)
    assert len(series.xs) == len(series.ys) <= MAX_POINTS
    assert (min(v for v in series.ys if v), max(v for v in series.ys if v)) == (1.0, 97.0)
    assert all(y == x % 97 + 1 for x, y in zip(series.xs, series.ys))
