"""The filled area of the memory panel: its scale, its columns, its mark and the line of the phases."""

from __future__ import annotations

import pytest
from helpers.lines import texts
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_curve import PhaseTotals, StepCurve
from gradtui.system.byte_units import unit_of
from gradtui.tui.panels.memory_curve import (
    Column,
    Scale,
    axis_labels,
    columns_of,
    curve_lines,
    in_unit,
    margin_of,
    phase_line,
    scale_for,
)
from gradtui.tui.rendering import line_width

MIB = 1 << 20
F, B, OPT = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER
STEP = StepCurve(
    12,
    (PhaseTotals(F, (10, 20, 30, 40)), PhaseTotals(B, (80, 60, 40, 20)), PhaseTotals(OPT, (20, 10))),
    80,
    B,
)


@pytest.mark.parametrize(
    ("low", "high", "scale"),
    [
        (0.0, 52.6, (0, 60)),
        (10.0, 99.3, (0, 100)),
        (0.0, 12.0, (0, 15)),
        (1.0, 33.0, (0, 40)),
        (95.0, 99.0, (95, 99)),
        (630.0, 655.0, (630, 655)),
    ],
)
def test_the_scale_ends_at_round_numbers(low: float, high: float, scale: tuple[int, int]) -> None:
    found = scale_for(round(low * MIB), round(high * MIB))
    assert (found.low / MIB, found.high / MIB) == scale


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 50))
def test_every_scale_holds_its_values_and_has_extent(one: int, other: int) -> None:
    low, high = min(one, other), max(one, other)
    scale = scale_for(low, high)
    slack = high / 1e6 + 1
    assert scale.low - slack <= low <= high <= scale.high + slack
    assert scale.low < scale.high
    assert all(len(label) <= 6 for label in axis_labels(scale))


def test_axis_not_from_zero_says_so() -> None:
    columns = [Column(total, F) for total in (45, 50, 60)]
    lines = curve_lines(columns, ("",), Scale(40, 60), 0, 4, says_from=True)
    assert [line[:5] for line in texts(lines)] == ["  60┤", "    │", "from│", "  40┊"]
    assert [line[:3] for line in texts(curve_lines(columns, ("",), Scale(40, 60), 0, 2))] == ["60┤", "40┊"]
    assert "┊" not in "".join(texts(curve_lines(columns, ("",), Scale(0, 60), 0, 4)))


def test_a_joined_scale_only_grows() -> None:
    assert Scale(0, 60).joined(Scale(0, 40)) == Scale(0, 60)
    assert Scale(90, 100).joined(Scale(95, 120)) == Scale(90, 120)


def test_numbers_of_a_unit_take_four_cells() -> None:
    assert unit_of(999 * MIB) == ("MiB", MIB)
    assert unit_of(1000 * MIB) == ("GiB", 1 << 30)
    sizes = (0, 4.7, 19.24, 99.97, 512)
    assert [in_unit(round(size * MIB), MIB) for size in sizes] == [" 0.0", " 4.7", "19.2", " 100", " 512"]


def test_without_times_every_total_has_the_same_width() -> None:
    columns = columns_of(STEP, {}, 10)
    assert [column.total for column in columns] == [10, 20, 30, 40, 80, 60, 40, 20, 20, 10]
    assert [column.phase for column in columns] == [F] * 4 + [B] * 4 + [OPT] * 2


def test_phase_is_wide_as_its_time() -> None:
    columns = columns_of(STEP, {F: 0.2, B: 0.7, OPT: 0.1}, 20)
    assert [column.phase for column in columns] == [F] * 4 + [B] * 14 + [OPT] * 2
    assert [column.total for column in columns][:4] == [10, 20, 30, 40]
    # Four totals over 14 columns: each holds until the next one.
    assert [column.total for column in columns][4:18] == [80] * 3 + [60] * 4 + [40] * 3 + [20] * 4


def test_short_phase_has_column_and_peak() -> None:
    columns = columns_of(STEP, {F: 0.5, B: 0.499, OPT: 0.001}, 10)
    assert columns[-1].phase is OPT
    assert max(column.total for column in columns_of(STEP, {}, 2)) == 80
    many = StepCurve(1, tuple(PhaseTotals((F, B)[i % 2], (i, 2 * i)) for i in range(60)), 118, B)
    assert max(column.total for column in columns_of(many, {F: 0.5, B: 0.5}, 20)) == 118


def test_area_is_filled_by_eighths_of_cell() -> None:
    columns = [Column(total, F) for total in (10, 80, 40, 25)] + [Column(10, B)] * 3
    lines = curve_lines(columns, ("",), Scale(0, 160), 0, 2)
    # 16 eighths stand for 160 bytes: 10 is one of them, 80 fill the lower row, 25 are 2.5, rounded to 2.
    assert texts(lines)[1] == "  0┤▁█▄▂▁▁▁"
    assert [role for part, role in lines[-1][1:]] == ["phase-forward", "phase-backward"]


def test_the_baseline_is_subtracted() -> None:
    columns = [Column(total, F) for total in (50, 60, 130)]
    assert texts(curve_lines(columns, ("",), Scale(0, 80), 50, 1))[0].endswith("▁▁█")


def test_mark_of_peak_is_over_its_column() -> None:
    columns = [Column(10, F)] * 5 + [Column(100, B)] * 2 + [Column(10, B)] * 30
    lines = texts(curve_lines(columns, ("backward, a.b", "a.b"), Scale(0, 100), 0, 3))
    assert lines[0] == "   │     ▲ backward, a.b".ljust(len(lines[0]))
    assert lines[1].startswith("100┤     ██ ")
    columns.reverse()
    lines = texts(curve_lines(columns, ("backward, a.b", "a.b"), Scale(0, 100), 0, 3))
    assert lines[0].endswith(" backward, a.b ▲      ")
    assert lines[1].endswith(" ██     ")
    # Above a peak below the top row, the mark is in the peak's own column.
    top = texts(curve_lines(columns, ("backward, a.b", "a.b"), Scale(0, 200), 0, 3))[0]
    assert top.index("▲") == len("200┤") + 30


def test_a_plateau_leaves_a_row_to_the_label() -> None:
    lines = texts(
        curve_lines([Column(100, F)] * 20, ("forward, a.very.long.path", "a.very.long.path"), Scale(0, 100), 0, 3)
    )
    assert lines[0] == "   │▲ a.very.long.path  "
    assert lines[1:] == ["100┤" + "█" * 20, "  0┤" + "█" * 20]


def test_phases_are_named_where_they_begin() -> None:
    columns = [Column(1, F)] * 20 + [Column(1, B)] * 25 + [Column(1, OPT)] * 3
    shares = {F: 0.37, B: 0.48, OPT: 0.04}
    (line,) = texts([phase_line(columns, shares, 4)])
    assert line == "   └forward 37 % ────── backward 48 %  optimizer 4 %"
    (short,) = texts([phase_line(columns[12:36] + columns[-2:], shares, 3)])
    # Of 26 columns the names take 8, 8 and 7.
    assert short == "  └fwd 37 % bwd 48 %  opt 4 %"


@pytest.mark.parametrize("width", [12, 24, 44, 64])
def test_phase_line_says_whole_of_share(width: int) -> None:
    columns = columns_of(STEP, {F: 0.37, B: 0.48, OPT: 0.04}, width)
    (line,) = texts([phase_line(columns, {F: 0.37, B: 0.48, OPT: 0.04}, 3)])
    assert ("of the step" in line) is (width == 64)


@given(
    st.lists(st.tuples(st.sampled_from(Phase), st.lists(st.integers(0, 1 << 60), min_size=1, max_size=9)), min_size=1),
    st.dictionaries(st.sampled_from(Phase), st.floats(0.0, 1.0)),
    st.integers(1, 80),
    st.integers(1, 9),
    st.integers(0, 1 << 60),
)
def test_any_course_can_be_drawn_in_its_place(
    parts: list[tuple[Phase, list[int]]], shares: dict[Phase, float], width: int, height: int, baseline: int
) -> None:
    totals = [total for _, each in parts for total in each]
    step = StepCurve(1, tuple(PhaseTotals(phase, tuple(each)) for phase, each in parts), max(totals), parts[0][0])
    columns = columns_of(step, shares, width)
    assert max(column.total for column in columns) == max(totals)
    scale = scale_for(max(0, min(totals) - baseline), max(1, max(totals) - baseline))
    lines = curve_lines(columns, ("backward, a.b",), scale, baseline, height)
    assert len(lines) == height
    assert {line_width(line) for line in lines} == {width + margin_of(scale)}
