from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradtui.run.text import units as fmt
from gradtui.run.text.units import BYTES_WIDTH, DASH, bytes_text
from gradtui.tui.rendering.lines import width_of

anything = st.none() | st.floats()
whole = st.none() | st.integers() | st.integers(min_value=0, max_value=10**15)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (fmt.number_text, fmt.NUMBER_WIDTH),
        (fmt.rate_text, fmt.RATE_WIDTH),
        (fmt.share_text, fmt.SHARE_WIDTH),
        (fmt.microseconds_text, fmt.MICROSECONDS_WIDTH),
        (fmt.seconds_text, fmt.SECONDS_WIDTH),
    ],
)
@given(value=anything)
@example(value=-0.0625)
def test_a_float_never_changes_the_width(text: Callable[[float | None], str], width: int, value: float | None) -> None:
    assert width_of(text(value)) == width


@given(whole)
def test_bytes_and_counts_never_change_the_width(value: int | None) -> None:
    assert width_of(bytes_text(value)) == BYTES_WIDTH
    assert width_of(fmt.count_text(value)) == fmt.COUNT_WIDTH


@given(st.integers(min_value=0), st.integers(min_value=5, max_value=12))
def test_a_step_number_fits_its_width(step: int, width: int) -> None:
    assert width_of(fmt.steps_text(step, width)) == width


@pytest.mark.parametrize(
    "text",
    [
        bytes_text,
        fmt.count_text,
        fmt.number_text,
        fmt.rate_text,
        fmt.share_text,
        fmt.microseconds_text,
    ],
)
def test_unknown_is_a_dash_and_no_digit(text: Callable[[None], str]) -> None:
    assert DASH in text(None)
    assert not re.search(r"\d", text(None))


@given(st.integers(min_value=0, max_value=999 * 1024**6))
def test_bytes_are_right_to_three_digits(size: int) -> None:
    number, unit = bytes_text(size).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert abs(float(number) * factor - size) <= max(0.5, size * 0.0051)


@given(st.integers(min_value=0, max_value=10**20))
def test_counts_are_right_to_three_digits(count: int) -> None:
    text = fmt.count_text(count).strip().replace(",", "")
    unit = text[-1] if text[-1].isalpha() else ""
    factor = 10 ** (3 * ("", "k", "M", "B", "T", "P", "E").index(unit))
    assert abs(float(text.rstrip(unit)) * factor - count) <= count * 0.0051


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_numbers_are_right_to_the_digits_they_show(value: float) -> None:
    text = fmt.number_text(value).strip().replace(",", "")
    digits = max(1, len(text.partition("e")[0].strip("-").lstrip("0.").replace(".", "")))
    assert float(text) == pytest.approx(value, rel=0.5 * 10 ** (1 - digits) * 1.01, abs=5e-324)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.2914, "3.29"), (0.0371, "0.037"), (1.2e-5, "1.2e-5"), (0.8421, "0.842"), (31.24, "31.2"), (312.4, "312"),
        (12_345.6, "12,346"), (99_999.6, "1.0e5"), (0.00371, "0.0037"), (0.00094, "9.4e-4"), (-0.0626, "-0.063"),
        (0.99951, "1.00"), (9.996, "10.0"), (99.96, "100"),
    ],
)  # fmt: skip
def test_numbers_by_example(value: float, text: str) -> None:
    assert fmt.number_text(value).strip() == text


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), "NaN"), (float("inf"), "Inf"), (float("-inf"), "-Inf"), (0.0, "0")]
)
def test_special_values_are_named(value: float, text: str) -> None:
    assert fmt.number_text(value).strip() == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1.00 KiB"), (50_436_506, "48.1 MiB"), (-2048, "-2.0 KiB")],
)
def test_bytes_by_example(size: int, text: str) -> None:
    assert bytes_text(size).strip() == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (59.96, "1m 00s"), (185, "3m 05s"), (3720, "1h 02m"), (4 * 86400 + 7 * 3600, "4d 07h")],
)
def test_seconds_by_example(seconds: float, text: str) -> None:
    assert fmt.seconds_text(seconds).strip() == text


@pytest.mark.parametrize(
    ("microseconds", "text"), [(38, "38 µs"), (2.34, "2.3 µs"), (1240, "1.24 ms"), (2.5e6, "2.50 s")]
)
def test_microseconds_by_example(microseconds: float, text: str) -> None:
    assert fmt.microseconds_text(microseconds).strip() == text


def test_share_that_is_small_is_not_called_zero() -> None:
    assert fmt.share_text(0.0001) == "<0.1%"
    assert fmt.share_text(0.0).strip() == "0.0%"


def test_rate_that_is_small_is_not_called_zero() -> None:
    assert "0.00" not in fmt.rate_text(0.001)


def test_shapes_and_dtypes() -> None:
    assert fmt.shape_text((512, 256)) == "512×256"
    assert fmt.shape_text(()) == "scalar"
    assert fmt.dtype_text("torch.bfloat16") == "bf16"
    assert fmt.dtype_text("some_new_dtype") == "some"
