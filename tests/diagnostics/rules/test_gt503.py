"""GT503: update ratios far from 1e-3."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats, GroupSettings
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState


def state_of(ratios: Sequence[float], parameter: int = 0, first: int = 11, states: str = "TTTT") -> RunState:
    """The update ratios of a parameter in the steps from `first` on."""
    state = run(states)
    for step, ratio in enumerate(ratios, first):
        figures = GradientStats(parameter, 1.0, 0.0, 1.0, 0.0, 0, 1.0, ratio, True)
        apply(state, ev.GradientFiguresMeasured(1.0, step, (figures,)))
    return state


def test_a_hundred_times_too_small_or_too_large() -> None:
    small = match("GT503", state_of([1e-3, 9e-6, 8e-6, 7e-6]))
    assert (small.evidence, small.paths) == ({"tensors": 1, "elements": 16, "update_ratio": 7e-6}, ("a.weight",))
    large = match("GT503", state_of([0.2, 0.3, 0.4]))
    assert large.evidence["update_ratio"] == 0.4
    assert small.key != large.key


@pytest.mark.parametrize("ratios", [[9e-6, 1e-5, 9e-6], [0.2, 0.1, 0.2], [1e-3] * 3, [0.0] * 3, [0.5] * 2])
def test_nearer_ratios_no_update_and_too_few(ratios: list[float]) -> None:
    assert matches("GT503", state_of(ratios)) == []


def test_the_first_steps_a_bias_and_a_frozen_weight() -> None:
    assert matches("GT503", state_of([0.5] * 3, first=10)) == []
    assert matches("GT503", state_of([0.5] * 3, parameter=1)) == []
    assert matches("GT503", state_of([0.5] * 3, states="FTTT")) == []


def test_a_weight_that_begins_at_zero_and_moves_by_equal_steps() -> None:
    """After n steps the next one has the ratio 1 / n."""
    assert matches("GT503", state_of([1 / n for n in range(1, 14)], first=2)) == []


@pytest.mark.parametrize(("changed", "found"), [(11, 1), (12, 0)])
def test_a_small_ratio_while_the_learning_rate_changes(changed: int, found: int) -> None:
    """A warm-up. The settings of step 11 hold for the measurements of the steps 11, 12 and 13."""
    state = state_of([1e-6] * 3)
    apply(state, ev.GroupsRead(1.0, changed, ((GroupSettings(0.02, 0.0),),), before=changed - 1))
    assert len(matches("GT503", state)) == found


def test_a_large_ratio_while_the_learning_rate_changes() -> None:
    state = state_of([0.5] * 3)
    apply(state, ev.GroupsRead(1.0, 13, ((GroupSettings(0.02, 0.0),),), before=12))
    assert len(matches("GT503", state)) == 1


def test_what_the_run_lacked() -> None:
    assert rule_named("GT503").needs(state_of([1e-3] * 3)) is None
    assert rule_named("GT503").needs(state_of([1e-3] * 2)) == "too few update ratios were read after step 10"
