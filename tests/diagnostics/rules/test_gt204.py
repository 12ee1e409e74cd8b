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


def first_windows(*lengths: int) -> tuple[tuple[int, int], ...]:
    return tuple((0, length) for length in lengths)


def test_backwards_that_pass_into_the_next_epoch() -> None:
    """Ten batches, four to a step: the third step has the last two of the first epoch."""
    windows = window(4, count=5), window(6, count=3, first_step=3)
    found = match("GT204", run(calls=calls(*windows, first_windows=first_windows(4, 4, 6, 4, 6, 4, 6, 4))))
    assert (found.key, found.first_step) == ("passed on 0", 3)
    assert found.evidence == {"steps": 8, "long_windows": 3, "usual_window": 4, "passed_on": 2}


def test_backwards_that_pass_into_the_next_epoch_of_a_data_loader() -> None:
    """Six batches, four to a step. The long windows have asked for a seventh batch too."""
    windows = window(4, count=1), window(6, count=7, first_step=2, batches=7)
    found = match("GT204", run(calls=calls(*windows, first_windows=first_windows(4, *[6] * 7))))
    assert (found.key, found.evidence["passed_on"]) == ("passed on 0", 2)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((4, 6, 4, 6, 4, 6, 4, 6), id="the last step of an epoch has what is left as well"),
        pytest.param((4, 4, 6, 4, 4, 6, 6, 4), id="at no equal distances"),
        pytest.param((4, 4, 8, 4, 8, 4, 8, 4), id="whole windows are left out"),
        pytest.param((4, 4, 6, 4, 6, 4, 5, 4), id="of several lengths"),
        pytest.param((4, 4, 4, 4, 4, 6, 6, 6), id="the length grows"),
    ],
)
def test_longer_windows_that_are_meant(lengths: tuple[int, ...]) -> None:
    kinds = [window(length, count=lengths.count(length)) for length in sorted(set(lengths))]
    assert matches("GT204", run(calls=calls(*kinds, first_windows=first_windows(*lengths)))) == []


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
