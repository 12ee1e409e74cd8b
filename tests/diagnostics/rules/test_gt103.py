"""GT103: a gradient from before the freeze."""

from __future__ import annotations

from scripted_run import match, matches, run


def test_a_stale_gradient_moves_a_frozen_parameter() -> None:
    found = match("GT103", run("TTTM", "1110", "---s"))
    assert found.message == "b.bias keeps a gradient from before the freeze, and each step applies it again".replace(
        "b.bias", "b.bias (4 elements)"
    )
    assert found.paths == ("b.bias",)


def test_a_parameter_that_moves_for_another_reason() -> None:
    assert matches("GT103", run("TTTM", "1110", "---z")) == []
