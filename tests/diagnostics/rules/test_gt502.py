"""GT502: gradients that vanish by depth."""

from __future__ import annotations

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

NAMES = "abcdef"


def state_of(*sizes: float, kind: str = "Linear", states: str = "", in_turn: bool = True) -> RunState:
    """The root mean square of the gradient of each weight. The modules are called in turn, or in the reverse order."""
    count = len(sizes)
    layers = tuple(Node(name, kind, linear(name).parameters) for name in NAMES[:count])
    ranks = range(2, count + 2) if in_turn else range(count + 1, 1, -1)
    letters = {"reach": "e" * (count + 1), "grad_modes": "g" * (count + 1), "training": "1" * (count + 1)}
    state = run(
        states or "TT" * count, "11" * count, owned=range(2 * count), model=found(Node("Net", "Net", (), layers)),
        called=(1, *ranks), **letters,
    )  # fmt: skip
    # A weight has 16 elements: the L2 norm is four times the root mean square.
    norms = tuple(norm for size in sizes for norm in (4 * size, 1.0))
    apply(state, ev.GradientsMeasured(1.0, 20, 1.0, None, norms))
    return state


def test_a_hundredth_in_each_third() -> None:
    found_ = match("GT502", state_of(1e-7, 1e-9, 1e-5, 1e-5, 1e-1, 1e-3))
    assert found_.evidence == pytest.approx({"layers": 6, "first": 1e-8, "middle": 1e-5, "last": 1e-2})
    assert found_.paths == ("a.weight", "b.weight")


def test_the_order_of_the_calls_counts() -> None:
    vanishing = (1e-7, 1e-7, 1e-4, 1e-4, 1e-1, 1e-1)
    assert matches("GT502", state_of(*vanishing, in_turn=False)) == []
    assert match("GT502", state_of(*reversed(vanishing), in_turn=False)).paths == ("f.weight", "e.weight")


def test_a_gradient_that_falls_once_or_less() -> None:
    assert matches("GT502", state_of(1e-7, 1e-7, 1e-1, 1e-1, 1e-1, 1e-1)) == []
    assert matches("GT502", state_of(1e-4, 1e-4, 9e-3, 9e-3, 0.9, 0.9)) == []
    assert matches("GT502", state_of(*[0.1] * 6)) == []


def test_few_layers_other_modules_and_layers_without_a_gradient() -> None:
    vanishing = (1e-7, 1e-7, 1e-4, 1e-4, 1e-1, 1e-1)
    assert matches("GT502", state_of(*vanishing[:5])) == []
    assert matches("GT502", state_of(*vanishing, kind="Embedding")) == []
    assert matches("GT502", state_of(*vanishing, states="CC" + "TT" * 5)) == []
    assert matches("GT502", state_of(0.0, *vanishing[1:])) == []
    assert matches("GT502", run()) == []


def test_what_the_run_lacked() -> None:
    assert rule_named("GT502").needs(state_of(*[0.1] * 6)) is None
    assert rule_named("GT502").needs(state_of(*[0.1] * 5)) == "no model had 6 layers with a gradient"
