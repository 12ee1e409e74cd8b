"""GT209: the first NaN."""

from __future__ import annotations

import math

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level


def test_the_first_nan_stays() -> None:
    state = run()
    apply(state, ev.NonFiniteFound(1.0, 41, 1, "NaN", Phase.BACKWARD, 40, parameter="b.weight"))
    apply(state, ev.NonFiniteFound(1.0, 42, 2, "Inf", Phase.FORWARD, 40, module="a"))
    found = match("GT209", state)
    assert found.first_step == 41
    assert found.paths == ("b.weight",)
    assert found.evidence["value"] == "NaN"
    assert found.evidence["last_finite_step"] == 40


@pytest.mark.parametrize(("skipped", "norm", "level"), [(1, 0.5, Level.NOTE), (0, 0.5, None), (1, math.inf, None)])
def test_a_step_that_a_scaler_left_out(skipped: int, norm: float, level: Level | None) -> None:
    """The step that follows has the same number."""
    state = run()
    apply(state, ev.Progress(1.0, 41, 1, 1, skipped, (21,), (), 0.0, 1, 1))
    apply(state, ev.NonFiniteFound(1.0, 41, 1, "Inf", Phase.FORWARD, 40))
    apply(state, ev.GradientsMeasured(1.0, 41, norm, None, None))
    assert match("GT209", state).level is level


def test_finite_values() -> None:
    assert matches("GT209", run()) == []
