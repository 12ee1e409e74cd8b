"""GT112: nothing trains."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run


def test_no_parameter_is_trainable() -> None:
    found = match("GT112", run("FFFF", "0000", steps=60))
    assert found.message == "no parameter is trainable: 60 optimizer steps moved none of 4 tensors"
    assert found.evidence == {"steps": 60, "tensors": 4, "tensors_in_optimizers": 4}


def test_no_trainable_parameter_gets_a_gradient() -> None:
    found = match("GT112", run("UUFF", "1100", steps=60))
    assert (
        found.message == "no trainable parameter gets a gradient: 60 optimizer steps moved none of 2 trainable tensors"
    )


@pytest.mark.parametrize(
    ("states", "trainable", "steps"),
    [("UUTT", "1111", 60), ("----", "1111", 60), ("FFFF", "----", 60), ("ZZZZ", "1111", 60), ("FFFF", "0000", 2)],
)
def test_something_may_train(states: str, trainable: str, steps: int) -> None:
    assert matches("GT112", run(states, trainable, steps=steps, samples=min(steps, 4))) == []
