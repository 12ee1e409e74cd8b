"""GT204: windows of unequal length."""

from __future__ import annotations

import pytest
from scripted_run import calls, match, matches, run, window


def test_a_short_first_window() -> None:
    found = match("GT204", run(calls=calls(window(1, count=1), window(4, count=19, first_step=2))))
    assert found.key == "first 0"
    assert found.evidence == {"first_window": 1, "usual_window": 4, "steps": 20}


def test_backwards_that_are_cleared_at_the_end_of_an_epoch() -> None:
    """Two epochs of ten batches, four to a step: two backwards are lost after the first epoch."""
    found = match("GT204", run(calls=calls(window(4, count=3), window(4, 2, count=1, first_step=3))))
    assert found.key == "left over 0"
    assert found.evidence == {"backwards_lost": 2, "windows": 1, "usual_window": 4, "steps": 4}


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param((window(1),), id="one backward a step"),
        pytest.param((window(4),), id="regular"),
        pytest.param((window(4, count=19), window(2, count=1, first_step=20)), id="a short last window is stepped"),
        pytest.param((window(1, count=1), window(2, count=1), window(4, count=18)), id="the length grows"),
        pytest.param((window(4), window(4, 4, count=2)), id="whole windows are skipped"),
        pytest.param((window(4), window(4, 1, count=2, forwards=6)), id="batches are skipped before backward"),
        pytest.param((window(1, 1),), id="one of two backwards serves another purpose"),
    ],
)
def test_correct_windows(windows: tuple[object, ...]) -> None:
    assert matches("GT204", run(calls=calls(*windows))) == []  # type: ignore[arg-type]
