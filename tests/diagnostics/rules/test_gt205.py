"""GT205: sums of losses."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_run import calls, match, matches, run, window

from gradtui.protocol.call_order import LossFactors
from gradtui.run.state.findings import Level


def test_a_sum_over_four_batches() -> None:
    found = match("GT205", run(calls=calls(window(4))))
    assert found.evidence == {"backwards_a_step": 4, "steps": 20, "clipped": 0, "clipped_if_divided": 0}
    assert found.is_exact


@pytest.mark.parametrize(
    ("norms", "level"),
    [
        pytest.param((), Level.NOTE, id="no clipping"),
        pytest.param((3.0, 3.5, 2.0), None, id="the sum is clipped, the mean would not be"),
        pytest.param((30.0, 35.0, 20.0), Level.NOTE, id="the mean would be clipped too"),
        pytest.param((0.3, 0.5, 0.2), Level.NOTE, id="the sum is not clipped"),
    ],
)
def test_it_is_a_note_unless_it_decides_what_clipping_cuts(norms: tuple[float, ...], level: Level | None) -> None:
    state = run(calls=calls(window(4)))
    if norms:
        state.clipped_at = 1.0
    for step, norm in enumerate(norms, 1):
        state.before_clipping.append(step, norm)
    assert match("GT205", state).level is level


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


@pytest.mark.parametrize(
    ("factors", "count"),
    [
        pytest.param(LossFactors(0, 4, is_scaled=True, divisors=(4.0,), count=16), 0, id="divided"),
        pytest.param(LossFactors(0, 4, is_scaled=True, divisors=(1.0,), count=16), 1, id="divided by 1"),
        pytest.param(
            LossFactors(0, 4, is_scaled=False, divisors=(), count=16), 1, id="another optimizer's loss is divided"
        ),
    ],
)
def test_the_losses_of_the_optimizer_itself_decide(factors: LossFactors, count: int) -> None:
    assert len(matches("GT205", run(calls=calls(window(4), loss_is_scaled=True, losses=(factors,))))) == count


def test_optimizers_one_after_the_other_without_a_data_loader() -> None:
    first, after = window(4, batches=0), window(1, batches=0, optimizer=1, first_step=21)
    assert len(matches("GT205", run(calls=calls(first, after)))) == 1
    between = window(1, batches=0, optimizer=1, first_step=10)
    assert matches("GT205", run(calls=calls(first, between))) == []
