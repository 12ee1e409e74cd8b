from __future__ import annotations

import math

import pytest
from helpers.events import gradient_stats
from helpers.explained import short
from helpers.fakes import Node, coop_model, coop_states, found, large_model
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import recomputed_bytes, saved_bytes, subtree, totals
from gradtui.run.state.series import joint_norm
from gradtui.tui.tree.tree_totals import ChosenSums, RangeNorms, RangeSums, TreeTotals

norms = st.none() | st.floats(min_value=0) | st.just(math.nan) | st.just(math.inf)


def are_same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, rel=1e-9)


@given(st.lists(norms, min_size=1, max_size=1500), st.data())
def test_range_norms_equal_the_norm_of_the_slice(row: list[float | None], data: st.DataObject) -> None:
    ranges = RangeNorms(row)
    for _ in range(3):
        start = data.draw(st.integers(0, len(row)))
        stop = data.draw(st.integers(start, len(row)))
        assert are_same(ranges.norm(range(start, stop)), joint_norm(row[start:stop]))


def any_range(data: st.DataObject, count: int) -> tuple[int, int]:
    start = data.draw(st.integers(0, count))
    return start, data.draw(st.integers(start, count))


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=1500), st.data())
def test_range_sums_equal_the_sum_of_the_slice(sizes: list[int], data: st.DataObject) -> None:
    sums = RangeSums(sizes)
    for _ in range(3):
        start, stop = any_range(data, len(sizes))
        assert sums.sum(start, stop) == sum(sizes[start:stop])


@given(st.integers(1, 1500), st.integers(0, 1 << 30), st.data())
def test_chosen_sums_follow_every_choice(count: int, seed: int, data: st.DataObject) -> None:
    sizes = [(index * 7919 + seed) % 1000 for index in range(count)]
    sums, chosen = ChosenSums(sizes), bytearray(count)
    for _ in range(3):
        first, last = any_range(data, count)
        chosen[first:last] = bytes([data.draw(st.integers(0, 1))]) * (last - first)
        sums.choose(bytes(chosen))
        start, stop = any_range(data, count)
        assert sums.sum(start, stop) == sum(
            size for size, is_chosen in zip(sizes[start:stop], chosen[start:stop]) if is_chosen
        )


def test_small_norm_beside_huge_one_keeps_its_value() -> None:
    row = [1e-20] * 600 + [1e20] * 600
    assert RangeNorms(row).norm(range(600)) == pytest.approx(1e-20 * math.sqrt(600))


def test_large_ratio_is_joined_as_why() -> None:
    state = RunState()
    apply(state, large_model(600))
    apply(state, ev.ParametersClassified(1.0, 1, "T" * 600, "1" * 600))
    figures = tuple(gradient_stats(index, 0.002, weight=2.0, std=0.1) for index in range(600))
    apply(state, ev.GradientFiguresMeasured(1.0, 2, figures))
    shown = TreeTotals(state.tree, 8)
    shown.update(state)
    assert shown.ratio(range(600)) == pytest.approx(0.002)
    assert "Moves 0.2 % a step" in " ".join(short(state, 0))


def coop_state(letters: str = "", flags: str = "") -> RunState:
    state = RunState()
    model = coop_model()
    apply(state, model)
    states, trainable = coop_states(model)
    apply(state, ev.ParametersClassified(1.0, 1, letters or states, flags or trainable))
    return state


@given(st.data())
def test_every_sum_equals_the_selectors(data: st.DataObject) -> None:
    count = len(coop_model().parameters)
    letters = "".join(data.draw(st.lists(st.sampled_from("TZUFCOMNS-"), min_size=count, max_size=count)))
    flags = "".join(data.draw(st.lists(st.sampled_from("01"), min_size=count, max_size=count)))
    state = coop_state(letters, flags)
    row = tuple(data.draw(st.lists(norms, min_size=count, max_size=count)))
    apply(state, ev.GradientsMeasured(1.0, 1, None, None, row))
    saved = tuple(3 * index for index in range(len(state.tree.modules)))
    again = tuple(data.draw(st.lists(st.sampled_from([0, 0, 0, 7, None]), min_size=len(saved), max_size=len(saved))))
    apply(state, ev.SavedBytesMeasured(1.0, 1, saved, sum(saved), (), again, (0,) * len(saved)))
    sums = TreeTotals(state.tree, 8)
    sums.update(state)
    for index, module in enumerate(state.tree.modules):
        expected = totals(state.tree, module)
        where = subtree(module)
        assert sums.count(where) == expected.parameters
        assert sums.bytes(where) == expected.bytes
        assert sums.trainable(where) == expected.trainable
        assert set(sums.letters(where)) == set(expected.states)
        assert are_same(sums.norm(where), expected.norm)
        assert sums.kept(index) == saved_bytes(state.tree, index)
        assert sums.recomputed(index) == (recomputed_bytes(state.tree, index) is not None)


def test_what_needs_a_look_is_named_first() -> None:
    state = coop_state("F" * 50 + "T" * 30 + "N" + "C" * (len(coop_model().parameters) - 81))
    assert TreeTotals(state.tree, 8).letters(subtree(state.tree.modules[0]))[0] == "N"


def test_trainable_is_unknown_until_every_parameter_is_known() -> None:
    state = RunState()
    apply(state, coop_model())
    sums = TreeTotals(state.tree, 8)
    sums.update(state)
    assert sums.trainable(subtree(state.tree.modules[0])) is None


def test_unmeasured_is_none_not_zero() -> None:
    state = coop_state()
    sums = TreeTotals(state.tree, 8)
    sums.update(state)
    assert sums.norm(subtree(state.tree.modules[0])) is None
    assert sums.kept(0) is None


def test_only_the_newest_rows_are_kept_in_order() -> None:
    state = RunState()
    apply(state, found(Node("M", "M", (("a", (2,)), ("b", (2,))))))
    sums = TreeTotals(state.tree, 3)
    for step in range(1, 6):
        apply(state, ev.GradientsMeasured(float(step), step, None, None, (float(step), None)))
        sums.update(state)
    sums.update(state)
    assert sums.recent(range(1)) == [3.0, 4.0, 5.0]
    assert sums.recent(range(1, 2)) == [None, None, None]
    assert sums.recent(range(2)) == [3.0, 4.0, 5.0]
