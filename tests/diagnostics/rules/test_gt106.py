"""GT106: orphans with a gradient."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run


def test_a_module_in_no_optimizer_gets_gradients() -> None:
    found = match("GT106", run("OOTT", owned=(2, 3)))
    assert found.paths == ("a.weight", "a.bias")
    assert found.evidence == {"tensors": 2, "elements": 20}
    assert found.command is None, "an unfreeze refuses what is trainable already"


def test_samples_count_where_progress_has_not_arrived() -> None:
    assert matches("GT106", run("OOTT", owned=(2, 3), steps=0, samples=3)) != []
    assert matches("GT106", run("OOTT", owned=(2, 3), steps=2, samples=2)) == []


@pytest.mark.parametrize("reach", ["e-e", "e e"])
def test_orphans_that_backward_does_not_enter(reach: str) -> None:
    assert matches("GT106", run("OOTT", owned=(2, 3), reach=reach)) == []


def test_a_run_without_an_optimizer() -> None:
    assert matches("GT106", run("OOOO", owned=None)) == []
