from __future__ import annotations

import math

from helpers.lines import line_text
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.rendering.lines import line_width, sparkline


def text(values: list[float | None], width: int = 8) -> str:
    return line_text(sparkline(values, width))


@given(st.lists(st.none() | st.floats(), max_size=30), st.integers(min_value=0, max_value=20))
def test_it_takes_exactly_its_width_whatever_the_values(values: list[float | None], width: int) -> None:
    assert line_width(sparkline(values, width)) == width


def test_larger_values_are_higher() -> None:
    drawn = text([1e-4, 1e-3, 1e-2, 1e-1], 4)
    assert list(drawn) == sorted(drawn)
    assert len(set(drawn)) == 4


def test_the_newest_values_stand_at_the_right() -> None:
    assert text([1.0, 10.0, 100.0], 6).startswith("   ")
    assert text([5.0, 5.0, 1.0, 10.0], 2) == text([1.0, 10.0], 2)


def test_a_curve_that_hardly_moves_is_flat() -> None:
    assert len(set(text([1.0, 1.01, 0.99, 1.0], 4))) == 1


def test_zero_is_lowest_height_even_among_tiny_values() -> None:
    assert text([0.0, 1e-30, 1.0], 3)[0] == "▁"


def test_non_finite_is_error_alone() -> None:
    plain = text([1.0, 10.0, 100.0], 3)
    spans = sparkline([1.0, math.nan, 10.0, math.inf, 100.0], 5)
    marks = [part for part, role in spans if role == "error"]
    assert marks == ["×", "×"]
    assert "".join(part for part, role in spans if role != "error") == plain


def test_unknown_values_are_blank() -> None:
    assert text([1.0, None, 1.0], 3)[1] == " "
    assert text([None, None], 4) == "    "
