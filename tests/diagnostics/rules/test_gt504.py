"""GT504: weight decay of biases and norms."""

from __future__ import annotations

import pytest
from fakes import Node, found
from scripted_run import linear, match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

NORM = Node("b", "LayerNorm", (("weight", (4,)), ("bias", (4,))))


def state_of(
    *decays: float | None, groups: tuple[int, ...] = (0, 0, 0, 0), trainable: str = "1111", freed: bool = False
) -> RunState:
    """A linear module `a` and a norm `b`; the weight decay of each group, and the group of each parameter."""
    state = run(trainable=trainable, model=found(Node("Net", "Net", (), (linear("a"), NORM))))
    optimizer = OptimizerInfo("AdamW", len(decays), (0, 1, 2, 3), 0, groups, freed=freed)
    apply(state, ev.OptimizersFound(1.0, 1, (optimizer,)))
    apply(state, ev.GroupsRead(1.0, 1, (tuple(GroupSettings(0.01, decay) for decay in decays),)))
    return state


def test_one_group_of_all_parameters() -> None:
    found_ = match("GT504", state_of(0.1))
    assert found_.paths == ("a.bias", "b.weight", "b.bias")
    assert found_.evidence == {"tensors": 3, "elements": 12, "weight_decay": 0.1}
    assert found_.is_exact


def test_groups_of_which_one_decays() -> None:
    assert match("GT504", state_of(0.1, 0.0, groups=(0, 1, 0, 1))).paths == ("b.weight",)
    assert matches("GT504", state_of(0.1, 0.0, groups=(0, 1, 1, 1))) == []


@pytest.mark.parametrize("decay", [0.0, None])
def test_no_weight_decay(decay: float | None) -> None:
    assert matches("GT504", state_of(decay)) == []
    assert rule_named("GT504").needs(state_of(decay)) == "no optimizer had a weight decay"


def test_frozen_parameters_and_an_optimizer_that_is_gone() -> None:
    assert match("GT504", state_of(0.1, trainable="1011")).paths == ("b.weight", "b.bias")
    assert matches("GT504", state_of(0.1, freed=True)) == []


def test_another_vector_and_a_bias_with_two_dimensions() -> None:
    """A class token, and the table of a relative position bias."""
    model = found(Node("Net", "Net", (("token", (4,)), ("bias_table", (4, 4))), (linear("b"),)))
    state = run(model=model)
    apply(state, ev.GroupsRead(1.0, 1, ((GroupSettings(0.01, 0.1),),)))
    assert match("GT504", state).paths == ("b.bias",)


def test_what_the_run_lacked() -> None:
    assert rule_named("GT504").needs(state_of(0.1)) is None
    assert rule_named("GT504").needs(run(owned=None)) == "no optimizer stepped"
