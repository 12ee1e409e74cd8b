"""GT501: gradients that are exactly zero for most units."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

FIGURES = GradientStats(0, 1.0, 0.0, 1.0, 0.0, 0, 1.0, 0.001, True, 20, 20)


def state_of(weight: float, bias: float, kind: str = "Linear", states: str = "TTTT", stored: int = 20) -> RunState:
    """The share of zeros in the gradients of `a.weight` and `a.bias`; those of `b` have none."""
    first = Node("a", kind, (("weight", (20, 4)), ("bias", (20,))))
    state = run(states, model=found(Node("Net", "Net", (), (first, linear("b")))))
    shares = (weight, bias, 0.0, 0.0)
    figures = [replace(FIGURES, parameter=index, zero_fraction=share) for index, share in enumerate(shares)]
    figures[0] = replace(figures[0], stored=stored)
    apply(state, ev.GradientFiguresMeasured(1.0, 5, tuple(figures)))
    return state


@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "BatchNorm1d"])
def test_most_units_have_no_gradient(kind: str) -> None:
    found_ = match("GT501", state_of(0.95, 0.9, kind))
    assert found_.evidence == {"units": 20, "units_without_gradient": 18, "zero_fraction": 0.95}
    assert found_.paths == ("a.weight", "a.bias")
    assert not found_.is_exact


def test_a_layer_without_any_gradient() -> None:
    """All gradients are exactly zero: the state is Z."""
    assert match("GT501", state_of(1.0, 1.0, states="ZZTT")).evidence["units_without_gradient"] == 20


def test_zeros_of_the_weight_alone_or_of_the_bias_alone() -> None:
    """Inputs that are zero, and a masked bias."""
    assert matches("GT501", state_of(0.99, 0.0)) == []
    assert matches("GT501", state_of(0.0, 0.99)) == []
    assert matches("GT501", state_of(0.89, 0.89)) == []


def test_an_embedding_a_sparse_gradient_and_a_frozen_layer() -> None:
    assert matches("GT501", state_of(1.0, 1.0, "EmbeddingWithBias")) == []
    assert matches("GT501", state_of(1.0, 1.0, stored=1)) == []
    assert matches("GT501", state_of(1.0, 1.0, states="FFTT")) == []


def test_what_the_run_lacked() -> None:
    assert rule_named("GT501").needs(state_of(0.0, 0.0)) is None
    assert rule_named("GT501").needs(run()) == "no layer with a bias had statistics of its gradient"
