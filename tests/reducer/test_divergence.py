"""What the viewer of a job makes of measurements of several ranks: what differs, since when, and on which rank."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from helpers.jobs import PATHS, Job, model
from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.reducer.common_steps import least_common
from gradtui.run.reducer.divergence import differences
from gradtui.run.state.parts.job import CHECKS_KEPT, Divergence, Kind
from gradtui.run.text import between_ranks, divergence_text, since_text


def test_equal_ranks_differ_in_nothing() -> None:
    job = Job(3)
    for step in (1, 16, 32):
        job.check_all(step)
    assert job.job.divergences == {}
    assert set(job.job.equal_steps.values()) == {32}
    assert job.texts == []


@pytest.mark.parametrize(
    ("kind", "values", "names", "words"),
    [
        ("trainable", {"trainable": "10"}, ("a.bias",), ("trainable", "frozen")),
        ("owned", {"owned": "01"}, ("a.weight",), ("in an optimizer", "in none")),
        ("rates", {"rates": ((0.2,),)}, ("optimizer 0, group 0",), ("0.1", "0.2")),
        ("rates", {"rates": ((0.1, 0.3),)}, ("optimizer 0, group 1",), ("none", "0.3")),
        ("rates", {"rates": ((0.1,), (0.3,))}, ("optimizer 1, group 0",), ("none", "0.3")),
        ("checksums", {"checksums": (320, 0)}, ("a.bias",), ()),
        ("checksums", {"checksums": (0, 0)}, PATHS, ()),
    ],
)
def test_what_differs_on_a_rank(kind: Kind, values: dict[str, object], names: tuple[str, ...], words: object) -> None:
    job = Job(2)
    job.check_all(16)
    job.check_all(32, but=1, **values)
    assert list(job.job.divergences) == [kind]
    found = job.divergence(kind)
    assert (found.names, found.ranks, found.compared, found.values) == (names, (1,), (0, 1), words)
    assert (found.equal_step, found.step, found.last_step, found.over_step) == (16, 32, 32, None)
    assert len(job.texts) == 1


def test_buffers_are_named_by_their_paths() -> None:
    job = Job(2)
    job.check(0, 16, buffers=(7,))
    job.check(1, 16, buffers=(8,))
    assert job.divergence("buffers").names == ("a.mean",)
    assert job.divergence("buffers").equal_step is None


@pytest.mark.parametrize(
    ("values", "ranks", "distinct", "text"),
    [
        ((1, 2), (1,), 2, "between ranks 0 and 1"),
        ((1, 2, 1), (1,), 2, "between rank 1 and the other 2 ranks"),
        ((2, 1, 1), (0,), 2, "between rank 0 and the other 2 ranks"),
        ((1, 2, 3), (1, 2), 3, "between all 3 ranks"),
        ((1, 1, 2, 1), (2,), 2, "between rank 2 and the other 3 ranks"),
        ((1, 1, 2, 2), (2, 3), 2, "between ranks 2, 3 and the other 2 ranks"),
        ((2, 2, 1, 1), (2, 3), 2, "between ranks 2, 3 and the other 2 ranks"),
        ((1, 2, 3, 2), (0, 2), 3, "between ranks 0, 2 and the other 2 ranks"),
        ((1, 2, 3, 4), (1, 2, 3), 4, "between all 4 ranks"),
        ((1, 2, 2), (0,), 2, "between rank 0 and the other 2 ranks"),
        ((1, 2, 3, 4, 5, 1), (1, 2, 3, 4), 5, "between ranks 1, 2, 3, 4 and the other 2 ranks"),
        ((1, 2, 3, 1, 4, 5, 6, 1), (1, 2, 4, 5, 6), 6, "between ranks 1, 2, 4, 5 and 1 more and the other 3 ranks"),
    ],
)
def test_who_differs(values: tuple[int, ...], ranks: tuple[int, ...], distinct: int, text: str) -> None:
    job = Job(len(values))
    for rank, value in enumerate(values):
        job.check(rank, 16, checksums=(value, 9))
    found = job.divergence("checksums")
    assert (found.ranks, found.distinct, between_ranks(found)) == (ranks, distinct, text)


def test_ranks_that_differ_at_different_parameters() -> None:
    job = Job(3)
    job.check(0, 16, checksums=(1, 1))
    job.check(1, 16, checksums=(2, 1))
    job.check(2, 16, checksums=(1, 2))
    found = job.divergence("checksums")
    assert (found.names, found.ranks, found.distinct) == (PATHS, (1, 2), 2)
    assert between_ranks(found) == "between ranks 1, 2 and rank 0"


def test_what_rank_does_not_know_is_not_compared() -> None:
    job = Job(2)
    job.check(0, 16, checksums=(1, None), rates=((0.1, math.nan),), buffers=())
    job.check(1, 16, checksums=(None, 2), rates=((math.nan, 0.2),), buffers=(3,))
    assert job.job.divergences == {}


@given(st.permutations([(rank, step) for rank in range(3) for step in (16, 32, 48)]))
def test_order_of_rank_events_does_not_matter(order: list[tuple[int, int]]) -> None:
    """The events of one rank keep their order."""
    job = Job(3)
    steps = {rank: iter((16, 32, 48)) for rank in range(3)}
    for rank, _ in order:
        step = next(steps[rank])
        job.check(rank, step, **({"trainable": "01"} if (rank, step) == (2, 32) else {}))
    found = job.divergence("trainable")
    assert (found.equal_step, found.step, found.last_step, found.over_step) == (16, 32, 32, 48)
    assert found.ranks == (2,)
    assert [record.checks for record in job.job.ranks.values()] == [[], [], []]


def test_nothing_is_compared_before_all_ranks_have_joined() -> None:
    job = Job(3, joined=(0, 1))
    job.check_all(16, but=1, trainable="00")
    assert job.job.compared_step == 0
    job.join(2)
    job.check(2, 16)
    assert job.divergence("trainable").ranks == (1,)


def test_rank_that_lacks_measurement_costs_that_step_only() -> None:
    job = Job(2)
    job.check(0, 16)
    job.check(0, 32)
    job.check(1, 32, trainable="00")
    assert (job.job.compared_step, job.divergence("trainable").step) == (32, 32)
    job.check(1, 16, trainable="00")
    assert job.divergence("trainable").step == 32


def test_rank_far_behind_is_compared_when_it_comes() -> None:
    job = Job(2)
    last = 16 * 10 * CHECKS_KEPT
    for step in range(16, last + 1, 16):
        job.check(0, step)
    assert len(job.job.ranks[0].checks) == CHECKS_KEPT
    # The rank behind measures less often, as its own cost demands.
    for step in range(1024, last + 1, 1024):
        job.check(1, step, trainable="11" if step < 3072 else "01")
    found = job.divergence("trainable")
    assert (found.equal_step, found.step, found.last_step) == (2048, 3072, last)


def test_gone_ranks_are_left_out_later() -> None:
    job = Job(3)
    job.check(1, 16)
    job.check(2, 16)
    assert job.job.compared_step == 0
    job.leave(0, "its process is gone")
    job.check(1, 32)
    job.check(2, 32, owned="00")
    assert job.divergence("owned").compared == (1, 2)
    # Where two ranks have ended in order, the events of the second one still count.
    job.check(1, 48)
    job.end(1, 60)
    job.check(2, 48, owned="10")
    assert job.divergence("owned").last_step == 48
    # One rank alone has nothing to be compared with.
    job.check(2, 64)
    assert job.job.compared_step == 48


def test_divergence_ends_and_begins_again() -> None:
    job = Job(2)
    for step, flags in ((16, "11"), (32, "01"), (48, "11"), (64, "11"), (80, "10")):
        job.check_all(step, but=1, trainable=flags)
        if step == 64:
            assert job.divergence("trainable").over_step == 48
    found = job.divergence("trainable")
    assert (found.equal_step, found.step, found.names, found.over_step) == (64, 80, ("a.bias",), None)
    assert job.texts == [
        "the flags requires_grad differ between ranks 0 and 1 since a step from 17 to 32: a.weight",
        "the flags requires_grad are equal on all ranks again",
        "the flags requires_grad differ between ranks 0 and 1 since a step from 65 to 80: a.bias",
    ]


def test_one_equal_sample_makes_nothing_equal() -> None:
    job = Job(2)
    job.check_all(16)
    job.check_all(32, but=1, checksums=(0, 321))
    for step in (48, 64, 80):
        job.check_all(step)
        assert job.divergence("checksums").over_step is None
    job.check_all(96, but=1, checksums=(960, 0))
    found = job.divergence("checksums")
    assert (found.names, found.step, found.last_step) == (PATHS, 32, 96)
    for step in (112, 128, 144, 160):
        job.check_all(step)
    assert (found.over_step, job.job.equal_steps["checksums"]) == (160, 160)
    assert len(job.texts) == 2


def test_changes_of_a_divergence_are_counted() -> None:
    job = Job(2)
    counts = []
    for step, flags in ((16, "11"), (32, "01"), (48, "01"), (64, "00"), (80, "11")):
        job.check_all(step, but=1, trainable=flags)
        counts.append(job.job.divergence_changes)
    assert counts == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("a.weight", "a.scale"), {"a.bias", "a.scale"}),
        (("a.weight",), {"a.bias"}),
        (("a.weight", "a.bias", "a.more"), {"a.more"}),
        (("a.bias", "a.weight"), {"the order of the parameters"}),
    ],
)
def test_ranks_with_other_models(paths: tuple[str, ...], names: set[str]) -> None:
    job = Job(3, joined=())
    for rank in range(3):
        job.join(rank, model(*paths) if rank == 1 else None)
    # The other facts have no meaning then: the indexes are those of other parameters.
    job.check_all(16, but=1, trainable="0" * len(paths), owned="0" * len(paths), checksums=(0,) * len(paths))
    assert list(job.job.divergences) == ["models"]
    found = job.divergence("models")
    assert (set(found.names), found.ranks) == (names, (1,))


def test_equal_models_are_kept_once() -> None:
    job = Job(3)
    first, second, third = (job.job.ranks[rank] for rank in range(3))
    assert first.parameters is second.parameters is third.parameters
    assert first.outline is second.outline is third.outline
    # Of parameters that ranks share, each may have another part.
    shared = model()
    parts = tuple(each for each in shared.parameters)
    assert first.outline[0] == tuple((each.path, each.shape) for each in parts)


def test_equal_measurements_are_kept_once() -> None:
    job = Job(3)
    for step in (16, 32):
        for rank in (0, 1):
            job.check(rank, step, rates=(tuple(map(float, "12")),))
    (first, second), (other, _) = (job.job.ranks[rank].checks for rank in (0, 1))
    assert first.checksums is other.checksums
    assert first.rates is other.rates is second.rates


def test_new_listing_forgets_measurements_of_old_one() -> None:
    job = Job(2)
    job.check(0, 16)
    job.event(0, model("a.weight"))
    job.check(1, 16)
    assert job.job.compared_step == 0
    # An event that was under way when the models changed has indexes of the former ones.
    job.check(0, 32, listing=0)
    job.check(1, 32)
    assert job.job.compared_step == 0


def test_a_restart_begins_anew() -> None:
    job = Job(2)
    job.check_all(16, but=1, trainable="00")
    changes = job.job.divergence_changes
    job.restart()
    assert (job.job.divergences, job.job.equal_steps, job.job.compared_step) == ({}, {}, 0)
    assert job.job.divergence_changes > changes
    job.check_all(16)
    assert job.job.divergences == {}
    # What a rank of the former generation still sends is not taken for that of the new one.
    job.generation = 0
    job.check(1, 32, trainable="00")
    job.generation = 1
    job.check(0, 32)
    assert job.job.compared_step == 16


@pytest.mark.parametrize(
    ("equal", "step", "text"),
    [
        (None, 1, "since step 1, the first compared"),
        (16, 17, "since step 17"),
        (16, 32, "since a step from 17 to 32"),
        (1008, 1024, "since a step from 1,009 to 1,024"),
    ],
)
def test_since_when(equal: int | None, step: int, text: str) -> None:
    assert since_text(Divergence("rates", equal, step, (0, 1), (1,), (), ())) == text


def test_the_entry_of_the_log() -> None:
    job = Job(2)
    job.check_all(16)
    job.check_all(32, but=1, checksums=(0, 0))
    assert job.texts == [divergence_text(job.divergence("checksums"))]
    expected = "values of parameters differ between ranks 0 and 1 since a step from 17 to 32: a.weight, a.bias"
    assert job.texts == [expected]


@given(seed=st.integers(0, 10_000), count=st.integers(2, 4))
def test_any_values_by_hand(seed: int, count: int) -> None:
    """Names and ranks as a slow comparison finds them."""
    rng = random.Random(seed)
    record = Job(2).job.ranks[0]
    values = {rank: tuple(rng.choice((1, 1, 1, 2, 3, None)) for _ in PATHS) for rank in range(count)}
    found = differences("checksums", values, record)
    names, ranks = [], set()
    for index, path in enumerate(PATHS):
        column = [values[rank][index] for rank in range(count)]
        if None in column or len(set(column)) == 1:
            continue
        names.append(path)
        most = max(column.count(value) for value in column)
        usual = next(value for value in column if column.count(value) == most)
        ranks |= {rank for rank, value in enumerate(column) if value != usual}
    assert (found.names, found.ranks) == (tuple(names), tuple(sorted(ranks)))


def test_which_step_other_ranks_measure_least_likely() -> None:
    steps = [16, 32, 48, 64, 80]
    assert [steps.pop(least_common(steps)) for _ in range(5)] == [16, 48, 80, 32, 64]


def test_any_order_of_different_intervals_agrees() -> None:
    rare, often = [32, 64], [16, 32, 48, 64]
    found = set()
    for places in itertools.combinations(range(6), 2):
        job = Job(2)
        first, second = iter(rare), iter(often)
        for place in range(6):
            if place in places:
                step = next(first)
                job.check(0, step, owned="01" if step == 64 else "11")
            else:
                job.check(1, next(second))
        divergence = job.divergence("owned")
        found.add((divergence.equal_step, divergence.step, divergence.ranks))
    assert found == {(32, 64, (1,))}
