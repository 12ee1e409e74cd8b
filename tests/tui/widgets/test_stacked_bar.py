from __future__ import annotations

from helpers.lines import line_text
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.rendering.lines import line_width
from gradtui.tui.widgets.stacked_bar import stacked_bar

sizes = st.lists(st.floats(min_value=-1e12, max_value=1e12), max_size=6)


@given(
    sizes,
    st.floats(min_value=0, max_value=1e12),
    st.integers(min_value=0, max_value=60),
    st.none() | st.floats(0, 2e12),
)
def test_a_bar_takes_exactly_its_width(parts: list[float], full: float, width: int, peak: float | None) -> None:
    named = [(f"r{index}", size) for index, size in enumerate(parts)]
    assert line_width(stacked_bar(named, full, width, peak)) == width
    assert line_width(stacked_bar(named, full, width, peak, "123456"[: len(parts)])) == width


def cells_by_role(parts: list[tuple[str, float]], full: float, width: int, peak: float | None = None) -> dict[str, int]:
    return {role: len(text) for text, role in stacked_bar(parts, full, width, peak) if role}


def test_parts_are_in_proportion_and_in_order() -> None:
    parts = [("parameters", 50.0), ("gradients", 25.0)]
    assert cells_by_role(parts, 100, 40) == {"parameters": 20, "gradients": 10}
    assert [role for _, role in stacked_bar(parts, 100, 40) if role] == ["parameters", "gradients"]


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=6), st.integers(min_value=1, max_value=60))
def test_rounding_stays_within_half_cell(parts: list[float], width: int) -> None:
    full = sum(parts) * 1.5
    drawn = sum(cells_by_role([(f"r{i}", size) for i, size in enumerate(parts)], full, width).values())
    if full > 0:
        assert abs(drawn - sum(parts) / full * width) <= 0.51


def test_peak_stands_where_it_belongs_beyond_bar() -> None:
    line = stacked_bar([("parameters", 50.0)], 100, 40, peak=75)
    assert line_text(line).index("▲") == 30


def test_a_peak_within_the_bar_hides_nothing() -> None:
    assert stacked_bar([("parameters", 100.0)], 100, 40, peak=60) == stacked_bar([("parameters", 100.0)], 100, 40)


def test_a_negative_part_takes_no_room() -> None:
    assert cells_by_role([("parameters", 50.0), ("other", -20.0)], 100, 40) == {"parameters": 20}


def test_patterns_tell_parts_apart_without_colour() -> None:
    line = stacked_bar([("parameters", 50.0), ("gradients", 50.0)], 100, 4, patterns="#=")
    assert line_text(line) == "##=="
