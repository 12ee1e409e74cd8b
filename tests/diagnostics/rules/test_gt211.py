"""GT211: gradients that are exactly zero."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

ROUND = ev.ZeroDerivativesFound(2.0, 4, (("torch.round", "middle", 2),), ("a.weight", "a.bias"))


def zero(*, steps: int = 20, found: ev.ZeroDerivativesFound | None = None, ratio: float | None = None) -> RunState:
    state = run("ZZTT", steps=steps)
    if ratio is not None:
        figures = (GradientStats(0, 0.0, 0.0, 0.0, 1.0, 0, 1.0, ratio, True),)
        apply(state, ev.GradientFiguresMeasured(1.0, 3, figures))
    if found is not None:
        apply(state, found)
    return state


def test_an_operation_without_a_derivative_is_named() -> None:
    one = match("GT211", zero(found=ROUND))
    assert "torch.round in middle has the derivative 0" in one.message
    assert one.paths == ("a.weight", "a.bias")
    assert one.level is None


def test_a_gradient_of_zero_for_an_unknown_reason_is_a_note() -> None:
    one = match("GT211", zero(ratio=0.0))
    assert one.level is Level.NOTE
    assert one.paths == ("a.weight",)


@pytest.mark.parametrize(
    "state", [zero(steps=4), zero(ratio=1e-3), run()], ids=["first steps", "moved before", "trains"]
)
def test_gradients_that_were_not_always_zero(state: RunState) -> None:
    assert [each for each in matches("GT211", state) if "a.weight" in each.paths] == []
