"""GT401: training in eval mode."""

from __future__ import annotations

import pytest
from fakes import Node, found
from scripted_run import calls, linear, match, matches, run, window

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def state_of(*, number: int = 3, steps: int = 3, trained_before: bool = True, kind: str = "Dropout") -> RunState:
    model = found(Node("Net", "Net", (), (linear("a"), Node("drop", kind), linear("b"))))
    mode = ev.EvalModeTraining("Net", 21, 20 + steps, number, trained_before)
    return run(
        model=model,
        reach="eeee",
        grad_modes="gggg",
        training="0000",
        called=(1, 2, 3, 4),
        calls=calls(eval_mode=(mode,)),
    )


@pytest.mark.parametrize("kind", ["Dropout", "BatchNorm1d"])
def test_training_after_an_evaluation(kind: str) -> None:
    found_ = match("GT401", state_of(kind=kind))
    assert found_.message == f"Net trains in eval mode since step 21: 1 {kind} off"
    assert found_.evidence == {"since_step": 21, "forwards": 3, "modules": 1}


def test_a_model_that_never_trained_otherwise() -> None:
    """Fine-tuning with dropout off and fixed statistics."""
    assert matches("GT401", state_of(trained_before=False)) == []


def test_calls_within_two_steps() -> None:
    """An attack on the inputs of an evaluation."""
    assert matches("GT401", state_of(number=20, steps=2)) == []


def test_two_calls_and_a_model_that_the_mode_does_not_change() -> None:
    assert matches("GT401", state_of(number=2)) == []
    assert matches("GT401", state_of(kind="LayerNorm")) == []


def test_a_second_optimizer_that_begins_with_eval_mode_is_a_note() -> None:
    """A script pretrains a model, and then fine-tunes it in eval mode."""
    state = state_of()
    assert match("GT401", state).level is None
    mode = ev.EvalModeTraining("Net", 21, 23, 3, trained_before=True)
    windows = window(), window(optimizer=1, first_step=20, count=10)
    ev_calls = calls(*windows, eval_mode=(mode,))
    apply(state, ev_calls)
    assert match("GT401", state).level is Level.NOTE


def test_the_first_optimizer_begins_no_new_phase() -> None:
    """An evaluation after two steps."""
    state = state_of()
    apply(state, calls(window(), eval_mode=(ev.EvalModeTraining("Net", 3, 20, 18, trained_before=True),)))
    assert match("GT401", state).level is None
