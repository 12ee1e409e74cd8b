"""A typed change of a learning rate finds its param group, or says which there are."""

from __future__ import annotations

import pytest

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.state.objections import in_full
from gradtui.state.run_state import RunState

RATE = {"command": "set_group", "learning_rate": 0.01}


def state(*groups: int, freed: frozenset[int] = frozenset()) -> RunState:
    """Return a run with an optimizer for each number of param groups."""
    optimizers = (OptimizerInfo("SGD", count, (), 0, freed=at in freed) for at, count in enumerate(groups))
    return RunState(optimizers=tuple(optimizers))


def test_the_only_group_need_not_be_named() -> None:
    assert in_full(RATE, state(1)) == {**RATE, "optimizer": 0, "group": 0}
    assert in_full(RATE, state(1, 1, freed=frozenset({0}))) == {**RATE, "optimizer": 1, "group": 0}
    assert in_full({**RATE, "group": 1}, state(2)) == {**RATE, "optimizer": 0, "group": 1}
    assert in_full({"command": "pause"}, state(2, 2)) == {"command": "pause"}


@pytest.mark.parametrize(
    ("run", "more", "reason"),
    [
        (state(2), {}, "there are 2 param groups, name one of optimizer=0 group=0 (SGD); optimizer=0 group=1 (SGD)"),
        (state(1, 1), {}, "there are 2 param groups"),
        (state(1), {"group": 3}, "there is no such param group; there is optimizer=0 group=0 (SGD)"),
        (state(), {}, "no optimizer has been seen yet"),
        (state(1, freed=frozenset({0})), {}, "there is no optimizer left"),
        (state(40), {}, "; and 34 more"),
    ],
)
def test_several_groups_are_named(run: RunState, more: dict[str, int], reason: str) -> None:
    with pytest.raises(BadEntry) as refused:
        in_full({**RATE, **more}, run)
    assert reason in str(refused.value)
