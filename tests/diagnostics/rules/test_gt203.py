"""GT203: gradients that nothing clears."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_run import calls, match, matches, run, window

NEVER: dict[str, Any] = {"clears": 0, "kept_gradients": 16, "cleared_gradients": 0}
WINDOWS = (window(count=1), window(count=19, first_step=2, carries=True))


def test_each_step_but_the_first_has_old_gradients() -> None:
    found = match("GT203", run(calls=calls(*WINDOWS, **NEVER)))
    assert found.evidence == {"steps": 20, "steps_with_old_gradients": 19, "zero_grad_calls": 0}
    assert (found.first_step, found.is_exact) == (2, True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"clears": 1}, id="zero_grad is called"),
        pytest.param({"cleared_gradients": 1}, id="the script sets grad to None or zero"),
        pytest.param({"kept_gradients": 0}, id="nothing was compared"),
    ],
)
def test_something_clears_them(change: dict[str, int]) -> None:
    assert matches("GT203", run(calls=calls(*WINDOWS, **{**NEVER, **change}))) == []
