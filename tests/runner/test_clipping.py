from __future__ import annotations

import os

import pytest

from gradtui.runner.clipping import clip, terminal_width


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("longer", None, "longer"),
        ("題題題", 6, "題題題"),
        ("題題題", 5, "題題…"),
        ("題題題", 4, "題…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
    ],
)
def test_no_line_is_wider_than_asked(text: str, width: int | None, clipped: str) -> None:
    assert clip(text, width) == clipped


def test_what_is_no_terminal_has_no_width() -> None:
    reading, writing = os.pipe()
    try:
        assert terminal_width(writing) is None
    finally:
        os.close(reading)
        os.close(writing)
