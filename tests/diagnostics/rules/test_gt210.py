"""GT210: skipped steps, and gradients that explode."""

from __future__ import annotations

from scripted_run import calls, match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def test_ten_skipped_steps_in_a_row() -> None:
    assert match("GT210", run(calls=calls(skips_in_a_row=10))).evidence == {"skips_in_a_row": 10}
    assert matches("GT210", run(calls=calls(skips_in_a_row=9))) == []


def with_norms(*norms: float, every: int = 1) -> RunState:
    state = run()
    for index, norm in enumerate(norms):
        apply(state, ev.GradientsMeasured(1.0, 1 + index * every, norm, None, None))
    return state


def test_a_norm_that_grows_a_hundredfold() -> None:
    found = match("GT210", with_norms(2.0, 0.5, 5.0, 50.0))
    assert found.evidence == {"from": 0.5, "to": 50.0, "from_step": 2, "to_step": 4}
    assert found.level is Level.NOTE


def test_a_norm_that_grows_less_or_slowly() -> None:
    assert matches("GT210", with_norms(0.5, 49.0)) == []
    assert matches("GT210", with_norms(0.5, 50.0, every=21)) == []


def test_norms_of_two_optimizers_are_not_compared() -> None:
    state = run()
    for step, norm in ((21, 0.01), (22, 7.0)):
        state.gradient_norm.append(step, norm)
    assert match("GT210", state).key == "growth"
    state.optimizer_steps = [10, 10]
    assert matches("GT210", state) == []
