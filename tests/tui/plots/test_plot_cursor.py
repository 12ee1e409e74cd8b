"""The cursor of the plots: where it goes, what it reads, and which marks it is at."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.state.over_steps.markers import Marker, MarkerKind
from gradtui.tui.plots.cursor import marks_at, next_mark, next_stop, read
from gradtui.tui.plots.options import REFERENCE_ROLE, Curve

EVERY, FEW = [float(step) for step in range(1, 101)], [10.0, 50.0, 90.0]
WHOLE = (1.0, 100.0)


def tenfold_curve(steps: list[float], role: str = "curve-1") -> Curve:
    return Curve("c", role, steps, [10 * step for step in steps])


def test_it_begins_at_the_newest_value_in_sight() -> None:
    assert next_stop([EVERY, FEW], None, -1, 1.0, WHOLE) == 100.0
    assert next_stop([EVERY, FEW], None, 1, 1.0, (20.0, 60.5)) == 60.0
    assert next_stop([[], []], None, 1, 1.0, WHOLE) is None


def test_cursor_goes_to_next_value() -> None:
    assert next_stop([FEW, [12.0, 49.0]], 10.0, 1, 1.0, WHOLE) == 12.0
    assert next_stop([FEW, [12.0, 49.0]], 10.0, 1, 5.0, WHOLE) == 49.0
    assert next_stop([EVERY], 50.0, -1, 4.5, WHOLE) == 45.0
    assert next_stop([EVERY], 50.0, 1, 0.001, WHOLE) == 51.0


def test_cursor_ends_beyond_newest_only() -> None:
    assert next_stop([EVERY], 98.0, 1, 5.0, WHOLE) == 100.0
    assert next_stop([EVERY], 100.0, 1, 5.0, WHOLE) is None
    assert next_stop([EVERY], 3.0, -1, 5.0, WHOLE) == 1.0
    assert next_stop([EVERY], 1.0, -1, 5.0, WHOLE) == 1.0
    assert next_stop([[7.0]], 7.0, -1, 5.0, (7.0, 7.0)) == 7.0


@given(st.lists(st.integers(0, 100_000), min_size=1, unique=True), st.floats(0.001, 1000), st.sampled_from([1, -1]))
def test_it_comes_to_end_and_never_goes_back(steps: list[int], least: float, direction: int) -> None:
    known = sorted(map(float, steps))
    at: float | None = known[0] if direction > 0 else known[-1]
    for _ in range(len(known) + 1):
        before, at = at, next_stop([known], at, direction, least, (known[0], known[-1]))
        if at is None or at == before:
            break
        assert before is not None
        assert (at - before) * direction > 0
        assert at in known
    assert at == (None if direction > 0 else known[0])


def test_curves_are_read_at_or_before_cursor() -> None:
    assert (read(tenfold_curve(EVERY), WHOLE, 42.0).value, read(tenfold_curve(EVERY), WHOLE, 42.0).at) == (420.0, 42.0)
    assert (read(tenfold_curve(FEW), WHOLE, 42.0).value, read(tenfold_curve(FEW), WHOLE, 42.0).at) == (100.0, 10.0)
    assert read(tenfold_curve(FEW), WHOLE, 9.0).value is None
    assert read(tenfold_curve([]), WHOLE, 9.0).index == -1


def test_without_cursor_newest_visible_value_is_read() -> None:
    assert read(tenfold_curve(EVERY), (20.0, 60.5)).at == 60.0
    assert read(tenfold_curve(FEW), (20.0, 40.0)).value is None


def test_threshold_has_no_step() -> None:
    reading = read(Curve("usual", REFERENCE_ROLE, [1.0, 100.0], [1e-3, 1e-3]), WHOLE, 42.0)
    assert (reading.value, reading.at) == (1e-3, None)
    broken = read(Curve("c", "curve-1", [1.0, 2.0], [math.nan, None]), WHOLE, 1.0)
    assert broken.value is not None
    assert math.isnan(broken.value)
    assert read(Curve("c", "curve-1", [1.0, 2.0], [math.nan, None]), WHOLE, 2.0).value is None


def mark(step: int, kind: MarkerKind = MarkerKind.FREEZE) -> Marker:
    return Marker(step, kind, "x")


@pytest.mark.parametrize(
    ("at", "direction", "expected"), [(None, -1, 90), (50.0, 1, 90), (50.0, -1, 10), (10.0, -1, 10), (95.0, 1, 90)]
)
def test_it_goes_from_mark_to_mark(at: float | None, direction: int, expected: int) -> None:
    assert next_mark([mark(90), mark(10), mark(50), mark(50)], at, direction) == expected


def test_without_marks_there_is_nowhere_to_go() -> None:
    assert next_mark([], 3.0, 1) is None
    assert marks_at([], 3.0, 1.0) == ([], False)


def test_marks_at_cursor_are_of_column() -> None:
    marks = [mark(10), mark(11, MarkerKind.SPIKE), mark(50), mark(50, MarkerKind.FINDING)]
    assert marks_at(marks, 10.4, 0.6) == (marks[:2], True)
    assert marks_at(marks, 40.0, 0.6) == (marks[2:], False)
    assert marks_at(marks, 30.5, 0.6) == ([marks[1]], False)
