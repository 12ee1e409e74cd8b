"""Sizes are read as people write them."""

from __future__ import annotations

import pytest

from gradtui.system.byte_units import UNITS, parse_size, unit_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 << 30), ("8g", 8 << 30), ("8 Gi", 8 << 30), ("8GB", 8 * 10**9), ("500 MB", 500 * 10**6), ("1.5k", 1536),
        (".5m", MIB // 2), ("1,500", 1500), ("1e9", 10**9), ("7 b", 7), ("", None), ("GiB", None), ("-1", None),
        ("1 quux", None), ("8 ib", None), ("1e999", None), ("nan", None), ("1 2", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_a_size_is_read_as_written(text: str, size: int | None) -> None:
    assert parse_size(text) == size


def test_a_unit_leaves_at_most_three_digits() -> None:
    assert [unit_of(size) for size in (0, 999, 1000, 999 * MIB, 1000 * MIB)] == [
        UNITS[0], UNITS[0], UNITS[1], UNITS[2], UNITS[3],
    ]  # fmt: skip
    assert unit_of(1 << 90)[0] == "EiB"
