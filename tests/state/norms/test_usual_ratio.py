"""Which update ratios are far from the usual one."""

from __future__ import annotations

import pytest
from helpers.fakes import Node, found

from gradtui.run.reducer import apply
from gradtui.run.state.norms.usual_ratio import is_far_from_usual
from gradtui.run.state.run_state import RunState


@pytest.mark.parametrize(
    ("ratio", "of_weight", "of_bias"),
    [
        (None, False, False),
        (0.0, False, False),
        (5e-7, True, True),
        (1e-3, False, False),
        (0.027, True, False),
        (0.672, True, True),
        (float("inf"), True, True),
        (float("nan"), True, True),
    ],
)
def test_a_bias_may_move_further_than_a_weight(ratio: float | None, of_weight: bool, of_bias: bool) -> None:
    state = RunState()
    apply(state, found(Node("Net", "Linear", (("weight", (2, 2)), ("bias", (2,))))))
    assert is_far_from_usual(state.tree, range(1), ratio) is of_weight
    assert is_far_from_usual(state.tree, range(1, 2), ratio) is of_bias
    assert is_far_from_usual(state.tree, range(2), ratio) is of_weight
