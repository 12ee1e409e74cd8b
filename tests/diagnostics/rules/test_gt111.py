"""GT111: trainable parameters in a reentrant checkpoint that records nothing."""

from __future__ import annotations

from scripted_run import match, matches, run


def test_trainable_parameters_that_are_never_recomputed() -> None:
    found = match("GT111", run("UUTT", reach="e-e", grad_modes="grg"))
    assert found.paths == ("a.weight", "a.bias")
    assert found.evidence == {"tensors": 2, "elements": 20}


def test_a_frozen_tower() -> None:
    assert matches("GT111", run("CCTT", "0011", reach="e-e", grad_modes="grg")) == []


def test_modules_that_are_recomputed() -> None:
    assert matches("GT111", run("UUTT", reach="e-e", grad_modes="ggg")) == []
