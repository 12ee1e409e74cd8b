"""GT102: what an optimizer moves without a gradient."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.run.state.findings import Level


def test_the_optimizer_moves_a_parameter_without_a_gradient() -> None:
    found = match("GT102", run("MTTT", "0111", "o---"))
    assert found.paths == ("a.weight",)
    assert found.evidence == {"tensors": 1, "elements": 16}


def test_what_something_else_moves() -> None:
    """An average of weights is in no optimizer."""
    assert matches("GT102", run("MMTT", "0011", "oo--", owned=(2, 3))) == []
    assert matches("GT102", run("MMTT", "0011", "ww--", owned=(2, 3))) == []


def test_what_the_script_writes_outside_of_the_step_is_a_note() -> None:
    """It may decay its weights itself, or average them."""
    found = match("GT102", run("MMTT", "0011", "ww--"))
    assert (found.level, found.key) == (Level.NOTE, "outside")
    assert found.evidence == {"tensors": 2, "elements": 20}
