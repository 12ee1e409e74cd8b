"""GT209: the first NaN."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.reducer import apply


def test_the_first_nan_stays() -> None:
    state = run()
    apply(state, ev.NonFiniteFound(1.0, 41, 1, "NaN", Phase.BACKWARD, 40, parameter="b.weight"))
    apply(state, ev.NonFiniteFound(1.0, 42, 2, "Inf", Phase.FORWARD, 40, module="a"))
    found = match("GT209", state)
    assert found.first_step == 41
    assert found.paths == ("b.weight",)
    assert found.evidence["value"] == "NaN"
    assert found.evidence["last_finite_step"] == 40


def test_finite_values() -> None:
    assert matches("GT209", run()) == []
