"""Figures of several parameters together: against the same figures of one tensor that holds all their elements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest
from helpers.fakes import Node, found
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GradientStats
from gradtui.run.reducer import apply
from gradtui.run.state.norms.aggregated_stats import aggregated_stats
from gradtui.run.state.run_state import RunState

value = st.floats(-1e6, 1e6, allow_subnormal=False) | st.just(0.0)
tensor = st.lists(value, min_size=1, max_size=6)


def of(index: int, gradient: Sequence[float], weight: Sequence[float], move: float | None) -> GradientStats:
    """The figures of one parameter, each element of which moves by `move`."""
    norm = math.hypot(*weight)
    moved = None if move is None or norm == 0 else math.sqrt(len(weight)) * abs(move) / norm
    zeros = sum(g == 0 for g in gradient) / len(gradient)
    return GradientStats(
        index,
        max(map(abs, gradient)),
        statistics.fmean(gradient),
        statistics.pstdev(gradient),
        zeros,
        0,
        norm,
        moved,
        True,
    )


def state_of(sizes: Sequence[int], *looks: tuple[int, GradientStats], trainable: str | None = None) -> RunState:
    state = RunState()
    apply(state, found(Node("M", "M", tuple((f"p{index}", (size,)) for index, size in enumerate(sizes)))))
    apply(state, ev.ParametersClassified(1.0, 1, "T" * len(sizes), trainable or "1" * len(sizes)))
    for step, figures in looks:
        apply(state, ev.GradientFiguresMeasured(1.0, step, (figures,)))
    return state


@given(st.lists(st.tuples(tensor, st.floats(0.5, 100), st.floats(-1, 1)), min_size=1, max_size=5))
def test_figures_equal_one_tensor_of_all(given_: list[tuple[list[float], float, float]]) -> None:
    looks = [(step, of(step, g, [w] * len(g), move)) for step, (g, w, move) in enumerate(given_)]
    joint = aggregated_stats(state_of([len(g) for g, _, _ in given_], *looks).tree, range(len(given_)))
    every = [x for g, _, _ in given_ for x in g]
    weights = [w for g, w, _ in given_ for _ in g]
    moves = [move for g, _, move in given_ for _ in g]
    assert joint is not None
    assert joint.max_abs == max(map(abs, every))
    assert joint.mean == pytest.approx(statistics.fmean(every), rel=1e-9, abs=1e-6)
    assert joint.std == pytest.approx(statistics.pstdev(every), rel=1e-6, abs=1e-6)
    assert joint.zero_fraction == pytest.approx(sum(x == 0 for x in every) / len(every))
    assert joint.weight_norm == pytest.approx(math.hypot(*weights))
    assert joint.update_ratio == pytest.approx(math.hypot(*moves) / math.hypot(*weights), abs=1e-12)
    assert (joint.tensors, joint.of, joint.ratio_tensors) == (len(given_),) * 3
    assert (joint.first_step, joint.last_step) == (0, len(given_) - 1)


def test_only_examined_training_is_in_and_counted() -> None:
    looks = [
        (3, of(0, [1.0, 1.0], [1.0, 1.0], 0.0)),
        (7, of(1, [9.0], [9.0], 0.0)),
        (5, of(3, [0.0, 4.0], [0.0], None)),
    ]
    state = state_of([2, 1, 2, 2], *looks, trainable="1011")
    joint = aggregated_stats(state.tree, range(4))
    assert joint is not None
    assert (joint.tensors, joint.of, joint.ratio_tensors) == (2, 3, 1)
    assert (joint.first_step, joint.last_step) == (3, 5)
    assert (joint.max_abs, joint.mean, joint.zero_fraction) == (4.0, 1.5, 0.25)
    assert aggregated_stats(state.tree, range(2, 3)) is None
    assert aggregated_stats(state.tree, range(0)) is None


def test_non_finite_adds_up_alone() -> None:
    bad = GradientStats(1, math.nan, math.nan, math.nan, 0.0, 3, 2.0, math.nan, True)
    also = GradientStats(2, math.inf, math.inf, math.nan, 0.0, 1, 2.0, 0.5, True)
    joint = aggregated_stats(
        state_of([2, 4, 2], (1, of(0, [1.0, 2.0], [1.0], 0.1)), (1, bad), (1, also)).tree, range(3)
    )
    assert joint is not None
    assert joint.not_finite == 4
    assert all(math.isnan(each) for each in (joint.max_abs, joint.mean, joint.std))


def test_sparse_gradient_counts_zeros_and_stored_mean() -> None:
    dense = of(0, [1.0, 1.0], [1.0], 0.0)
    sparse = GradientStats(1, 4.0, 4.0, 0.0, 0.9, 0, 1.0, 0.0, True, elements=10, stored=1)
    joint = aggregated_stats(state_of([2, 10], (1, dense), (1, sparse)).tree, range(2))
    assert joint is not None
    assert joint.mean == pytest.approx((1 + 1 + 4) / 3)
    assert joint.zero_fraction == pytest.approx(9 / 12)


def test_overflowing_figures_do_not_raise() -> None:
    joint = aggregated_stats(
        state_of([1], (1, GradientStats(0, 1e300, -1e300, 1e200, 0.0, 0, 1e300, 1.0, True))).tree, range(1)
    )
    assert joint is not None
    assert joint.update_ratio == pytest.approx(1.0)
