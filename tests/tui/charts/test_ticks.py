from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.ticks import Axis, linear_axis, log_axis, step_axis

SIZED = st.floats(-1e100, 1e100)


def labels(axis: Axis) -> list[str]:
    return [tick.label for tick in axis.ticks]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, ["0", "5", "10"]),
        (-1, 1, ["-1.0", "-0.5", "0", "0.5", "1.0"]),
        (0, 25_000, ["0", "10k", "20k"]),
        (0, 2.5e6, ["0", "1M", "2M"]),
        (0, 4e-7, ["0", "1e-7", "2e-7", "3e-7", "4e-7"]),
        (0, 4e20, ["0", "1e20", "2e20", "3e20", "4e20"]),
        (0.001, 0.004, ["0.001", "0.002", "0.003", "0.004"]),
    ],
)
def test_linear_labels_are_round_and_short(low: float, high: float, expected: list[str]) -> None:
    assert labels(linear_axis(low, high, rows=11)) == expected


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (90 * 2**20, ["0", "50 MiB", "100 MiB"]),
        (1010 * 2**20, ["0", "0.5 GiB", "1.0 GiB"]),
        (700, ["0", "200 B", "400 B", "600 B"]),
        (5 * 2**40, ["0", "2 TiB", "4 TiB"]),
    ],
)
def test_bytes_are_counted_in_powers_of_1024(high: float, expected: list[str]) -> None:
    assert labels(linear_axis(high / 2, high, rows=11, unit="bytes", from_zero=True)) == expected


def test_bytes_have_size_beside_name() -> None:
    axis = linear_axis(0, 90 * 2**20, rows=11, unit="bytes", from_zero=True)
    assert [tick.value for tick in axis.ticks] == [0, 50 * 2**20, 100 * 2**20]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-3.0, 0.0, ["0.001", "0.01", "0.1", "1"]),
        (-2.0, 1.0, ["0.01", "0.1", "1", "10"]),
        (-100.0, 100.0, ["1e-100", "1e-50", "1", "1e50", "1e100"]),
        (-0.6, -0.5, ["0.2", "0.3", "0.4"]),
    ],
)
def test_log_labels_are_powers_or_few_digits(low: float, high: float, expected: list[str]) -> None:
    assert labels(log_axis(low, high, rows=11)) == expected


def test_log_axis_without_ticks_shows_limits() -> None:
    assert labels(log_axis(0.1, 0.75, rows=3)) == ["1", "6"], "10 ** 0.1 is 1.26, and 10 ** 0.75 is 5.62"
    assert labels(log_axis(0.1, 0.75, rows=1)) == ["1"]


def test_limits_do_not_follow_every_small_change() -> None:
    axes = {(axis.lower, axis.upper) for axis in (linear_axis(0.1, 0.91 + i / 1000, rows=11) for i in range(50))}
    assert len(axes) == 1


@given(SIZED, SIZED, st.integers(1, 80), st.sampled_from(["", "bytes"]), st.booleans())
def test_linear_limits_hold_the_values_and_differ(one: float, other: float, rows: int, unit: str, zero: bool) -> None:
    low, high = min(one, other), max(one, other)
    axis = linear_axis(low, high, rows, unit, zero)  # type: ignore[arg-type]
    slack = 1e-6 * (axis.upper - axis.lower)
    assert axis.lower < axis.upper
    assert axis.lower - slack <= low <= high <= axis.upper + slack
    if zero:
        assert axis.lower - slack <= 0 <= axis.upper + slack
    assert axis.ticks
    assert all(axis.lower - slack <= tick.value <= axis.upper + slack for tick in axis.ticks)
    assert all(len(label) <= LABEL_WIDTH for label in labels(axis))


@given(st.floats(-100, 100), st.floats(-100, 100), st.integers(1, 80))
def test_log_limits_hold_the_values_and_differ(one: float, other: float, rows: int) -> None:
    low, high = min(one, other), max(one, other)
    axis = log_axis(low, high, rows)
    assert axis.lower < axis.upper
    assert axis.lower - 1e-6 <= low <= high <= axis.upper + 1e-6
    assert axis.ticks
    assert all(float(label) == pytest.approx(10**tick.value) for tick, label in zip(axis.ticks, labels(axis)))


@given(SIZED, SIZED, st.integers(1, 300))
def test_step_limits_are_the_steps(one: float, other: float, columns: int) -> None:
    low, high = min(one, other), max(one, other)
    axis = step_axis(low, high, columns)
    assert axis.lower == low
    assert high <= axis.upper
    assert axis.lower < axis.upper
    assert axis.ticks


def test_step_labels_are_whole_steps_far_enough_apart() -> None:
    assert labels(step_axis(0, 3, 92)) == ["0", "1", "2", "3"]
    assert labels(step_axis(0, 499, 52)) == ["0", "100", "200", "300", "400"]
    assert labels(step_axis(0, 2_000_000, 52)) == ["0", "0.5M", "1.0M", "1.5M", "2.0M"]
    assert labels(step_axis(10**9 + 1, 10**9 + 30, 52)) == ["1000000010", "1000000020", "1000000030"]


def test_a_single_step_stands_at_the_left_end() -> None:
    assert step_axis(7, 7, 52) == step_axis(7, 8, 52)
