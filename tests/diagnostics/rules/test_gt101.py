"""GT101: what a gradient of zeros moves, with the settings that move it."""

from __future__ import annotations

import pytest
from scripted_run import match, matches, run

from gradtui.protocol.events import GroupsRead
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.reducer import apply


@pytest.mark.parametrize("reason", ["z", "d"])
def test_frozen_parameters_that_zeros_move(reason: str) -> None:
    found = match("GT101", run("MMTT", "0011", reason * 2 + "--"))
    assert found.paths == ("a.weight", "a.bias")
    assert found.evidence == {"tensors": 2, "elements": 4 * 4 + 4}
    assert found.message.startswith(
        "a.weight, a.bias (20 elements) are frozen and move: the gradient is zeros, not None"
    )
    assert found.message.endswith("momentum 0.9 still applies")


def test_the_moments_of_adam_are_named() -> None:
    state = run("MMTT", "0011", "zz--")
    adam = GroupSettings(0.01, 0.0, (("betas", (0.9, 0.999)), ("eps", 1e-8)))
    apply(state, GroupsRead(1.0, 21, ((adam,),)))
    assert match("GT101", state).message.endswith("and moments with beta 0.9 still apply")


@pytest.mark.parametrize("reason", ["s", "o", "w", "-"])
def test_what_moves_for_another_reason(reason: str) -> None:
    assert matches("GT101", run("MMTT", "0011", reason * 2 + "--")) == []


def test_a_frozen_parameter_that_stays() -> None:
    assert matches("GT101", run("CCTT", "0011")) == []
