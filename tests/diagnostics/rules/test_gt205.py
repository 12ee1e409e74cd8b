"""GT205: sums of losses."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_run import calls, match, matches, run, window

from gradtui.state.findings import Level


def test_a_sum_over_four_batches() -> None:
    found = match("GT205", run(calls=calls(window(4))))
    assert found.evidence == {"backwards_a_step": 4, "steps": 20}
    assert found.is_exact


def test_it_is_a_note_unless_the_gradient_is_clipped() -> None:
    state = run(calls=calls(window(4)))
    assert match("GT205", state).level is Level.NOTE
    state.clipped_at = 1.0
    assert match("GT205", state).level is None


@pytest.mark.parametrize("batches", [0, 3])
def test_three_backwards_are_accumulation_and_two_may_be_two_losses(batches: int) -> None:
    assert matches("GT205", run(calls=calls(window(3, batches=batches)))) != []
    assert matches("GT205", run(calls=calls(window(2, batches=batches)))) == []


@pytest.mark.parametrize(
    ("windows", "changes"),
    [
        pytest.param((window(4),), {"loss_is_scaled": True}, id="divided"),
        pytest.param((window(4),), {"loss_is_scaled": None}, id="not known"),
        pytest.param((window(4),), {"gradients_replaced": 1}, id="the gradients are divided"),
        pytest.param((window(2, batches=1),), {}, id="two losses of a batch"),
        pytest.param((window(2, forwards=1),), {}, id="two losses of a forward"),
        pytest.param((window(1),), {}, id="one backward a step"),
        pytest.param((window(4, count=10), window(2, count=10)), {}, id="no usual length"),
    ],
)
def test_what_is_no_sum_over_batches(windows: tuple[Any, ...], changes: dict[str, Any]) -> None:
    assert matches("GT205", run(calls=calls(*windows, **changes))) == []
