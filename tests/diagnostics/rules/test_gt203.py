"""GT203: gradients that nothing clears."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_run import calls, match, matches, run, window

from gradtui.protocol.call_order import AccumulationWindow

NEVER: dict[str, Any] = {"gradients_compared": ((0, 15, 0),)}
WINDOWS = (window(count=1), window(count=19, first_step=2, carries=True))


def test_each_step_but_the_first_has_old_gradients() -> None:
    found = match("GT203", run(calls=calls(*WINDOWS, **NEVER)))
    assert found.evidence == {"steps": 20, "steps_with_old_gradients": 19}
    assert (found.first_step, found.is_exact) == (2, True)


def test_they_are_cleared_once_an_epoch() -> None:
    windows = window(count=4), window(count=16, first_step=2, carries=True)
    found = match("GT203", run(calls=calls(*windows, gradients_compared=((0, 12, 3),))))
    assert found.evidence == {"steps": 20, "steps_with_old_gradients": 16}


@pytest.mark.parametrize(
    ("windows", "compared"),
    [
        pytest.param(WINDOWS, ((0, 0, 15),), id="the script sets grad to None or zero"),
        pytest.param(WINDOWS, (), id="nothing was compared"),
        pytest.param((window(count=10), window(count=10, carries=True)), ((0, 8, 0),), id="every second step"),
        pytest.param(
            (window(count=1), window(0, count=19, carries=True)), ((0, 15, 0),), id="steps without a backward"
        ),
    ],
)
def test_something_clears_them(windows: tuple[AccumulationWindow, ...], compared: tuple[Any, ...]) -> None:
    assert matches("GT203", run(calls=calls(*windows, gradients_compared=compared))) == []
