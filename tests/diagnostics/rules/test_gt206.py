"""GT206: backwards that are cleared within a window."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_run import calls, match, matches, run, window

UNUSED = {"gradients_unused": 16}


def test_three_of_four_backwards_are_lost() -> None:
    found = match("GT206", run(calls=calls(window(1, 3), **UNUSED)))
    assert found.evidence == {"backwards": 4, "backwards_lost": 3, "steps": 20}
    assert found.is_exact


@pytest.mark.parametrize(
    ("windows", "changes"),
    [
        pytest.param((window(1, 1),), {"gradients_used": 1}, id="sharpness-aware minimisation"),
        pytest.param((window(1, 1),), {"gradients_replaced": 1}, id="gradients are projected"),
        pytest.param((window(4, 2, count=10), window(4, count=10)), UNUSED, id="half of the steps"),
        pytest.param((window(1, 3, count=2),), UNUSED, id="two steps"),
    ],
)
def test_backwards_that_serve_a_purpose(windows: tuple[Any, ...], changes: dict[str, Any]) -> None:
    assert matches("GT206", run(calls=calls(*windows, **changes))) == []


def test_an_attack_on_the_input() -> None:
    """Backward goes on to the input of the first model."""
    assert matches("GT206", run(calls=calls(window(1, 1), **UNUSED), reach="ppp")) == []
