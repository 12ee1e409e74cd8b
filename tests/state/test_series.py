"""Bounded histories: they never outgrow their room, keep the spikes, and lose detail only in what is old."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.state.series import RowHistory, Series, joint_norm

any_float = st.floats(allow_nan=True, allow_infinity=True, width=32)


def filled(values: list[float], capacity: int) -> Series:
    series = Series(capacity)
    for step, value in enumerate(values):
        series.append(step, value)
    return series


@given(values=st.lists(any_float, max_size=300), capacity=st.integers(4, 40))
def test_series_is_bounded_ordered_and_of_points(values: list[float], capacity: int) -> None:
    series = filled(values, capacity)
    assert len(series) <= capacity
    assert series.steps == sorted(set(series.steps))
    for step, value in series:
        assert value is values[step] or value == values[step]
    if values:
        assert series.steps[-1] == len(values) - 1
        assert series.last is values[-1]
    if len(values) <= capacity:
        assert series.steps == list(range(len(values)))


@given(
    where=st.integers(0, 999),
    spike=st.sampled_from([1e6, -1e6, math.nan, math.inf, -math.inf]),
    capacity=st.integers(8, 64),
    length=st.integers(1000, 3000),
)
def test_a_single_spike_survives_any_number_of_reductions(where: int, spike: float, capacity: int, length: int) -> None:
    values = [math.sin(step / 50) for step in range(length)]
    values[where] = spike
    assert where in filled(values, capacity).steps


@given(length=st.integers(1, 5000), capacity=st.integers(4, 64))
def test_series_covers_run_with_whole_newest_part(length: int, capacity: int) -> None:
    steps = filled([float(step) for step in range(length)], capacity).steps
    assert steps[0] == 0
    newest = min(length, max(1, capacity // 4))
    assert steps[-newest:] == list(range(length - newest, length))
    # Two thirds of the room at least share the run out among them.
    widest = max((b - a for a, b in itertools.pairwise(steps)), default=1)
    assert widest <= max(1, 16 * length / capacity)


@given(values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=400), capacity=st.integers(4, 40))
def test_means_are_of_what_points_stand_for(values: list[float], capacity: int) -> None:
    series = filled(values, capacity)
    assert len(series.means) == len(series)
    assert min(values) - 1e-6 <= min(series.means)
    assert max(series.means) <= max(values) + 1e-6
    if len(values) <= capacity:
        assert series.means == series.values


def test_an_average_is_not_of_what_stands_out() -> None:
    """Of a loss with a jump now and then the kept points are the jumps."""
    series = filled([10.0 if step % 32 == 7 else 1.0 for step in range(20_000)], 256)
    old = len(series) // 2
    assert sum(series.values[:old]) / old > 4
    assert sum(series.means[1:old]) / old == pytest.approx(1 + 9 / 32, rel=0.1)


def test_what_is_not_finite_counts_in_no_mean() -> None:
    series = filled([math.nan if step % 3 == 0 else 2.0 for step in range(2_000)], 32)
    assert set(series.means[1 : len(series) // 2]) == {2.0}


def test_a_long_run_costs_the_same_per_point() -> None:
    """Thinning frees a quarter of the room, so a point is moved a bounded number of times on average."""
    moved = 0

    class Counted(Series):
        def _keep(self, indices: list[int]) -> None:
            nonlocal moved
            moved += len(indices)
            super()._keep(indices)

    series = Counted(64)
    for step in range(20_000):
        series.append(step, 1.0)
    assert moved / 20_000 < 12


def test_an_empty_series_has_no_last_value() -> None:
    assert Series().last is None
    with pytest.raises(ValueError, match="at least 4"):
        Series(3)


@given(width=st.integers(0, 50), count=st.integers(0, 200), cells=st.integers(1, 4000), longest=st.integers(16, 64))
def test_rows_never_take_more_cells_than_allowed(width: int, count: int, cells: int, longest: int) -> None:
    history = RowHistory(cells, longest)
    for step in range(count):
        history.append(step, (float(step),) * width)
        assert len(history) <= longest
        # Some rows are always kept, however many parameters there are.
        assert len(history) * width <= max(cells, 16 * width)
    assert history.steps == sorted(set(history.steps))
    if count:
        assert history.steps[-1] == count - 1
        assert [row[:1] for row in history.rows] == [(step,) if width else () for step in history.steps]


def test_rows_reach_back_over_the_run() -> None:
    history = RowHistory(cells=10_000, longest=32)
    for step in range(100_000):
        history.append(step, (1.0,))
    assert history.steps[0] < 100
    assert max(b - a for a, b in itertools.pairwise(history.steps)) < 100_000 / 4
    assert history.steps[-8:] == list(range(99_992, 100_000))


def test_second_row_of_step_replaces_first() -> None:
    history = RowHistory()
    history.append(1, (1.0, None))
    history.append(1, (1.0, 2.0))
    assert (history.steps, history.rows) == ([1], [(1.0, 2.0)])


def test_rows_of_another_width_begin_a_new_history() -> None:
    history = RowHistory()
    history.append(1, (1.0, 2.0))
    history.append(2, (3.0,))
    assert (history.steps, history.rows) == ([2], [(3.0,)])


@given(st.lists(st.none() | st.floats(0, 1e150), max_size=30))
def test_joint_norm_is_the_norm_of_the_norms(norms: list[float | None]) -> None:
    known = [norm for norm in norms if norm is not None]
    joint = joint_norm(norms)
    if not known:
        assert joint is None
    else:
        assert joint is not None
        assert joint == pytest.approx(math.sqrt(math.fsum(norm**2 for norm in known)), rel=1e-12)


def test_joint_norm_passes_on_what_is_not_finite() -> None:
    assert joint_norm([1.0, math.inf, None]) == math.inf
    joint = joint_norm([1.0, math.nan])
    assert joint is not None
    assert math.isnan(joint)
    both = joint_norm([math.nan, math.inf])
    assert both is not None
    assert math.isnan(both), "as the total of torch"
    assert math.isnan(joint_norm([math.inf, None, math.nan]) or 0.0)
