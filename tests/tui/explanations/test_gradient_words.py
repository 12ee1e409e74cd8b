"""What a gradient looked like, in sentences."""

from __future__ import annotations

import math

import pytest
from helpers.fakes import coop_run
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.reducer import apply
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.run_state import RunState
from gradtui.run.text.gradients import joint_words, sampled_words


def seen(figures: GradientStats) -> RunState:
    return state_after(*coop_run(3), ev.GradientFiguresMeasured(9.0, 12, (figures,)))


def words_of(state: RunState, parameter: int) -> tuple[str | None, str | None]:
    return sampled_words(state.tree.gradient_figures.get(parameter))


def test_what_nobody_looked_at_is_not_mentioned() -> None:
    state = seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, 1e-3, True))
    assert words_of(state, 1) == (None, None)


def test_extremes_mean_and_zeros() -> None:
    words, _ = words_of(seen(GradientStats(0, 0.5, -0.001, 0.1, 0.25, 0, 2.0, 1e-3, True)), 0)
    assert words == "Largest element 0.500, mean -0.0010 ± 0.100, 25% exactly zero (step 12)."


@pytest.mark.parametrize(("fraction", "words"), [(0.0, "none"), (1.0, "all"), (0.004, "<1%"), (0.5, "50%")])
def test_shares(fraction: float, words: str) -> None:
    told, _ = words_of(seen(GradientStats(0, 0.5, 0.0, 0.1, fraction, 0, 2.0, None, True)), 0)
    assert told is not None
    assert f" {words} exactly zero" in told


def test_what_is_not_finite_comes_first() -> None:
    told, _ = words_of(seen(GradientStats(0, math.nan, math.nan, math.nan, 0.0, 3, 2.0, 1e-3, True)), 0)
    assert told == "3 elements are NaN or infinite (step 12)."


@pytest.mark.parametrize(("exact", "about"), [(True, ""), (False, "about ")])
def test_how_far_a_step_moves_a_parameter(exact: bool, about: str) -> None:
    _, told = words_of(seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, 1e-3, exact)), 0)
    assert told == f"A step moves it by {about}0.0010 of its norm 2.00: usual (about 0.001) (step 12)."


def test_motionless_step_and_unseen_one() -> None:
    _, told = words_of(seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, None, True)), 0)
    assert told == "Its norm is 2.00; how far a step moves it was not measured (step 12)."
    _, told = words_of(seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, 0.0, True)), 0)
    assert told == "The step did not move it; its norm is 2.00 (step 12)."


def test_other_models_are_not_mistaken_for_these() -> None:
    state = seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, 1e-3, True))
    apply(state, next(event for event in coop_run(1) if isinstance(event, ev.ModelsFound)))
    assert words_of(state, 0) == (None, None)


def test_module_words_count_their_tensors() -> None:
    state = seen(GradientStats(0, 0.5, 0.0, 0.1, 0.0, 0, 2.0, 1e-3, True))
    apply(
        state,
        ev.ParametersClassified(9.5, 14, "T" * 4 + "F" * (len(state.tree.parameters) - 4), training_flags(state, 4)),
    )
    apply(state, ev.GradientFiguresMeasured(9.5, 14, (GradientStats(2, 0.25, 0.0, 0.1, 0.0, 0, 1.5, None, True),)))
    assert joint_words(aggregated_stats(state.tree, range(4, 9))) == (None, None)
    words, moved = joint_words(aggregated_stats(state.tree, range(4)))
    assert words == "Largest element 0.500, mean 0 ± 0.100, none exactly zero (2 of 4 tensors, steps 12 to 14)."
    assert moved == (
        "A step moves it by 0.0010 of its norm 2.50: usual (about 0.001) (1 of 4 tensors, steps 12 to 14)."
    )


def training_flags(state: RunState, training: int) -> str:
    return "1" * training + "0" * (len(state.tree.parameters) - training)
