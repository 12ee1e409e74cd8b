"""The interval of a paired difference against arithmetic of its own, its coverage, and what is said and kept of a try."""

from __future__ import annotations

import numpy as np
import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.codec import from_words, words_of
from gradtui.protocol.commands import SetTrainable, TryChange
from gradtui.protocol.tries import TriedSide
from gradtui.records.export import schedule_file
from gradtui.run.reducer import apply
from gradtui.run.state.parts.paired import paired_difference, quantile
from gradtui.run.state.parts.tries import ORIGIN, chosen
from gradtui.run.state.run_state import RunState


def test_the_interval_is_that_of_the_cosine_estimator() -> None:
    rng = np.random.default_rng(3)
    without, with_it = rng.normal(size=50), rng.normal(size=50) + 0.3
    found = paired_difference([*without], [*with_it])
    assert found is not None
    difference = with_it - without
    # 0.4 * 50^(2/3) = 5.4: five frequencies. The 97.5 % quantile of t with 5 degrees of freedom is 2.571.
    at = (np.arange(50) + 0.5) / 50
    weights = [np.sqrt(2 / 50) * np.sum(np.cos(np.pi * j * at) * difference) for j in range(1, 6)]
    assert found.mean == pytest.approx(difference.mean())
    assert found.margin == pytest.approx(2.571 * np.sqrt(np.mean(np.square(weights)) / 50))


def test_quantiles_approach_normal_distribution_smoothly() -> None:
    values = [quantile(freedom) for freedom in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert quantile(40) == pytest.approx(2.021, abs=2e-3)
    assert quantile(10_000) == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.93), (0.5, 0.90), (0.8, 0.80)])
def test_interval_contains_mean_as_often_as_said(correlation: float, least: float) -> None:
    rng = np.random.default_rng(0)
    hits, runs, length = 0, 1_000, 50
    noise = rng.normal(size=(runs, length + 100))
    series = np.zeros_like(noise)
    for at in range(1, length + 100):
        series[:, at] = correlation * series[:, at - 1] + noise[:, at]
    for row in series[:, 100:]:
        found = paired_difference([0.0] * length, [*row])
        hits += found.is_noise
    assert hits / runs >= least


def test_unknown_pairs_are_left_out() -> None:
    found = paired_difference([1.0, None, 1.0], [2.0, 5.0, None])
    assert (found.mean, found.margin, found.pairs, found.is_noise) == (1.0, None, 1, True)
    assert paired_difference([None], [1.0]) is None
    assert paired_difference([1.0], [float("nan")]) is None


def side(change: str, loss: float, ended: str = "") -> TriedSide:
    return TriedSide(change, tuple(loss + 0.001 * (at % 3) for at in range(30)), (0.01,) * 30, 1 << 20, ended=ended)


def test_better_side_surely_has_lower_loss() -> None:
    without, lower, lowest = side("", 1.0), side("a", 0.9), side("b", 0.8)
    assert chosen("better", (without, lower, lowest)) == 2
    assert chosen("better", (without, lower, side("b", 0.8, "the loss is not finite"))) == 1
    assert chosen("better", (without, side("a", 1.1))) == 0
    assert chosen("change", (without, side("a", 1.1))) == 1
    assert chosen("none", (without, lower)) == 0


def test_held_aside_batches_are_left_out_by_word() -> None:
    typed = from_words(words_of(["try", "freeze a", "held_aside=false"]), 3)
    assert typed == TryChange(3, ("freeze a",), held_aside=False)


def test_schedule_repeats_try_without_its_changes() -> None:
    state, command = RunState(), TryChange(7, ("freeze a", "freeze b"), 30, "ask")
    inner = SetTrainable(-5, "b", False, origin=ORIGIN)
    apply(state, ev.CommandApplied(2.0, 40, inner, "froze b", ()))
    apply(state, ev.TryEnded(3.0, 90, 7, 9, 2))
    apply(state, ev.CommandApplied(3.0, 90, command, "tried", ()))
    (entry,) = [each for _, each in schedule_file._done(state)]
    assert entry.step == 9
    assert entry.command == TryChange(7, ("freeze b", "freeze a"), 30, "change")
