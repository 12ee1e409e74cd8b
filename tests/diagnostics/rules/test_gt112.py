"""GT112: nothing trains."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run

from gradtui.protocol.events import RunEnded


def test_no_parameter_is_trainable() -> None:
    found = match("GT112", run("FFFF", "0000", steps=60))
    assert found.message == "no parameter is trainable: 60 optimizer steps moved none of 4 tensors"
    assert found.evidence == {"steps": 60, "tensors": 4, "tensors_in_optimizers": 4}


def test_no_trainable_parameter_gets_a_gradient() -> None:
    found = match("GT112", run("UUFF", "1100", steps=60))
    assert (
        found.message == "no trainable parameter gets a gradient: 60 optimizer steps moved none of 2 trainable tensors"
    )


def test_backward_fails_because_there_is_nothing_to_do() -> None:
    state = run(steps=2)
    error = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    state.ended = RunEnded(1.0, 2, 1, f"Traceback (most recent call last):\n{error}\n")
    found = match("GT112", state)
    assert found.message == "backward failed after 2 steps: the loss depends on no trainable parameter"
    assert (found.evidence, found.is_exact) == ({"steps": 2, "tensors": 4}, True)
    state.ended = RunEnded(1.0, 2, 1, "Traceback (most recent call last):\nRuntimeError: something else\n")
    assert matches("GT112", state) == []


@pytest.mark.parametrize(
    ("states", "trainable", "steps"),
    [("UUTT", "1111", 60), ("----", "1111", 60), ("FFFF", "----", 60), ("ZZZZ", "1111", 60), ("FFFF", "0000", 2)],
)
def test_something_may_train(states: str, trainable: str, steps: int) -> None:
    assert matches("GT112", run(states, trainable, steps=steps, samples=min(steps, 4))) == []
