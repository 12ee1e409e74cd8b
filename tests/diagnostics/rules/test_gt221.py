"""GT221: one param group whose updates are far from those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats, GroupSettings
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

A, B = 0, 2
"""The indexes of the weights of the two layers."""


def state_of(
    first: Sequence[float],
    second: Sequence[float],
    begin: int = 11,
    born: bool = True,
    zeros: float = 0.0,
    rates: tuple[float, float] = (1e-3, 1e-3),
) -> RunState:
    """The update ratios of two layers, one in each group, in the steps from `begin` on; and in the first one, if `born`."""
    state = run("TTTT")
    (optimizer,) = state.optimizers
    apply(state, ev.OptimizersFound(1.0, 0, (replace(optimizer, groups=2, group_of=(0, 0, 1, 1)),)))
    apply(state, ev.GroupsRead(1.0, 1, (tuple(GroupSettings(rate, 0.0) for rate in rates),), None))
    rows = [*([(1, 0.5, 0.5)] if born else []), *((begin + n, *pair) for n, pair in enumerate(zip(first, second)))]
    for step, *ratios in rows:
        figures = [
            GradientStats(index, 1.0, 0.0, 1.0, zeros, 0, 1.0, ratio, True) for index, ratio in zip((A, B), ratios)
        ]
        apply(state, ev.GradientFiguresMeasured(1.0, step, tuple(figures)))
    return state


def test_a_group_that_hardly_moves_and_the_rate_to_try() -> None:
    found = match("GT221", state_of([1e-3] * 8, [2e-6] * 8))
    assert found.message == (
        "the updates of group 1 (b) are 2e-6 of its weights, 500 times less than those of group 0 (a)"
    )
    assert found.remedy == "try a learning rate of 0.5 for group 1 (b); now it is 1e-3"
    assert found.command == "set-lr 0.5 optimizer=0 group=1"
    assert found.paths == ("b.weight",)


def test_a_group_that_moves_too_far() -> None:
    found = match("GT221", state_of([0.2] * 8, [2e-3] * 8))
    assert "group 0 (a) are 0.2 of its weights, 100 times more than those of group 1 (b)" in found.message
    assert found.evidence["learning_rate_to_try"] == 1e-5


@pytest.mark.parametrize(
    "state",
    [
        state_of([1e-3] * 8, [1e-3] * 8),
        state_of([5e-2] * 8, [3e-4] * 8),  # a new head on a pretrained body, with a hundred times its rate
        state_of([2e-4] * 8, [8e-6] * 8),  # less than 30 times
        state_of([1e-3] * 8, [2e-6] * 7),  # too few
        state_of([1e-3] * 8, [2e-6] * 8, begin=3),  # too early
        state_of([1e-3] * 8, [0.0] * 8),  # a rate of 0 is meant
        state_of([1e-3] * 8, [2e-6] * 8, zeros=0.9),  # an embedding
        state_of([0.2] * 8, [2e-3] * 8, born=False),  # began at zero, as LoRA's second matrix
    ],
)
def test_healthy_groups(state: RunState) -> None:
    assert matches("GT221", state) == []


def test_a_warm_up_of_one_group_does_not_count_until_it_has_ended() -> None:
    state = state_of([1e-3] * 8, [2e-6] * 8)
    apply(state, ev.GroupsRead(1.0, 19, ((GroupSettings(1e-3, 0.0), GroupSettings(2e-3, 0.0)),), 18))
    assert matches("GT221", state) == []


def test_layerwise_rates_are_near_to_each_other() -> None:
    state = state_of([3e-4] * 8, [2e-6] * 8)
    assert len(matches("GT221", state)) == 1
    (optimizer,) = state.optimizers
    apply(state, ev.OptimizersFound(1.0, 0, (replace(optimizer, groups=2, group_of=(1, 1, 1, 1)),)))
    assert matches("GT221", state) == []


def test_what_the_run_lacked() -> None:
    assert rule_named("GT221").needs(state_of([1e-3] * 8, [1e-3] * 8)) is None
    assert rule_named("GT221").needs(state_of([1e-3] * 2, [1e-3] * 2)) is not None
    assert rule_named("GT221").needs(run("TTTT")) == "the optimizer has one parameter group"
