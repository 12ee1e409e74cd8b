from __future__ import annotations

from gradtui.run.state.series import RowHistory, joint_norm
from gradtui.tui.plots.rows import NormCurve


def history(rows: int, width: int) -> RowHistory:
    made = RowHistory()
    for step in range(rows):
        made.append(step, tuple(float(step + 1) * (index + 1) for index in range(width)))
    return made


def test_curve_is_joint_norm_of_each_row() -> None:
    rows = history(20, 5)
    steps, values = NormCurve().points(rows, 1, 4)
    assert steps == list(range(20))
    assert values == [joint_norm(row[1:4]) for row in rows.rows]


def test_wide_subtree_is_joined_newest_first() -> None:
    rows = history(10, 100)
    curve = NormCurve(cells=250)
    assert curve.points(rows, 0, 100)[0] == [7, 8, 9]
    assert curve.points(rows, 0, 100)[0] == [4, 5, 6, 7, 8, 9]
    for _ in range(3):
        steps, values = curve.points(rows, 0, 100)
    assert (steps, values) == NormCurve().points(rows, 0, 100)


def test_another_range_starts_anew() -> None:
    rows = history(5, 4)
    curve = NormCurve()
    curve.points(rows, 0, 4)
    assert curve.points(rows, 0, 1)[1] == [row[0] for row in rows.rows]


def test_rows_that_the_window_dropped_are_dropped() -> None:
    rows = history(5, 4)
    curve = NormCurve()
    curve.points(rows, 0, 4)
    rows.clear()
    assert curve.points(rows, 0, 4) == ([], [])


def test_without_gradients_there_is_gap_not_zero() -> None:
    rows = RowHistory()
    rows.append(1, (None, None))
    assert NormCurve().points(rows, 0, 2) == ([1], [None])


def test_same_places_of_other_listing_restart() -> None:
    curve, other = NormCurve(), RowHistory()
    curve.points(history(5, 4), 0, 2)
    for step in range(5):
        other.append(step, (7.0, 0.0, 1.0, 1.0))
    assert curve.points(other, 0, 2)[1] == [7.0] * 5
