"""GT218: losses that were divided twice by the number of backwards of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_run import calls, match, matches, run, window

from gradtui.protocol import events as ev
from gradtui.protocol.call_order import LossFactors
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

TWICE = LossFactors(0, 4, is_scaled=True, divisors=(4.0, 4.0), count=16)


def state_of(*losses: LossFactors, applied: int = 4) -> RunState:
    return run(calls=calls(window(applied), losses=losses))


def test_a_loss_that_is_divided_twice() -> None:
    found = match("GT218", state_of(TWICE))
    assert found.evidence == {"backwards_a_step": 4, "divisor": 16.0, "steps": 16}
    assert found.is_exact
    assert (
        found.message
        == "each loss of SGD is divided by 4 twice, and a step sums 4 of them: the gradient is 1/4 of the mean"
    )


def test_with_a_weight_besides() -> None:
    assert matches("GT218", state_of(replace(TWICE, divisors=(4.0, 2.0, 4.0)))) != []


@pytest.mark.parametrize(
    "divisors",
    [
        pytest.param((), id="never"),
        pytest.param((4.0,), id="once"),
        pytest.param((4.0, 2.0), id="a weight"),
        pytest.param((16.0,), id="by the number of samples"),
        pytest.param((2.0, 2.0), id="by another number"),
    ],
)
def test_other_divisors(divisors: tuple[float, ...]) -> None:
    assert matches("GT218", state_of(replace(TWICE, divisors=divisors))) == []


def test_too_few_steps_and_steps_that_differ() -> None:
    assert matches("GT218", state_of(replace(TWICE, count=2))) == []
    assert matches("GT218", state_of(TWICE, replace(TWICE, divisors=(4.0,)))) == []
    assert matches("GT218", state_of(replace(TWICE, applied=1, divisors=(1.0, 1.0)), applied=1)) == []


def test_as_many_processes_as_backwards() -> None:
    state = state_of(TWICE)
    apply(state, ev.ProcessGroupFound(1.0, 0, 0, 2, "gloo"))
    assert matches("GT218", state) != []
    apply(state, ev.ProcessGroupFound(1.0, 0, 0, 4, "gloo"))
    assert matches("GT218", state) == []
