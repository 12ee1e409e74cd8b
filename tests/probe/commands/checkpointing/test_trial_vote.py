"""All ranks checkpoint a module from the same step on, or none does, whenever each has made its trial."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.commands.checkpointing.trial_vote import PATIENCE, TrialVote
from gradtui.probe.torch_private.rendezvous import NoStoreError
from gradtui.run.text import refusals


class Store:
    """What all ranks read."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.numbers: Counter[str] = Counter()

    def write_once(self, name: str, value: str) -> str:
        if not self.values.get(name):
            self.values[name] = value
        return self.values[name]

    def count(self, name: str, more: Callable[[], int]) -> int:
        self.numbers[name] += more()
        return self.numbers[name]


def votes(ranks: int, store: Store) -> list[TrialVote]:
    return [TrialVote("a", rank, ranks, PATIENCE, store.write_once, store.count) for rank in range(ranks)]


def test_ranks_wait_for_trial_of_last_one() -> None:
    first, second = votes(2, Store())
    assert [first.decide(1, ""), second.decide(1, None)] == [None, None]
    # The second rank's trial succeeds in step 2, and it comes to the boundary first.
    assert [second.decide(2, ""), first.decide(2, "")] == ["", ""]


def test_early_deciding_rank_decides_for_all() -> None:
    first, second = votes(2, Store())
    assert [first.decide(1, ""), second.decide(1, "")] == [None, None]
    assert [first.decide(2, ""), second.decide(2, "")] == ["", ""]


def test_failing_trial_ends_on_all_ranks() -> None:
    first, second = votes(2, Store())
    assert [first.decide(1, ""), second.decide(1, "it differs")] == [None, None]
    assert [first.decide(2, ""), second.decide(2, "it differs")] == ["rank 1: it differs"] * 2


def test_trial_missed_by_rank_is_given_up() -> None:
    first, second = votes(2, Store())
    for step in range(1, PATIENCE):
        assert [first.decide(step, ""), second.decide(step, None)] == [None, None]
    reasons = {first.decide(PATIENCE, ""), second.decide(PATIENCE, "")}
    assert reasons == {refusals.not_tried_on_all(PATIENCE)}


def test_store_that_fails_leaves_rank_without_decision() -> None:
    def fails(name: str, value: object) -> str:
        raise NoStoreError("it does not answer")

    with pytest.raises(NoStoreError):
        TrialVote("a", 0, 2, 9, fails, Store().count).decide(1, "")


def test_vote_whose_call_fails_is_not_counted_twice() -> None:
    def count(name: str, more: Callable[[], int]) -> int:
        # The store has counted, its answer was lost, and the call is made again.
        store.count(name, more)
        return store.count(name, more)

    store = Store()
    first = TrialVote("a", 0, 2, PATIENCE, store.write_once, count)
    assert [first.decide(step, "") for step in (1, 2)] == [None, None]
    assert store.numbers["a/votes"] == 1


class FailingStore(Store):
    """Calls fail, before or after the store has heard of them, and are made again: see `answer_to`."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def write_once(self, name: str, value: str) -> str:
        for _ in range(self._chance.randrange(3)):
            super().write_once(name, value)
        return super().write_once(name, value)

    def count(self, name: str, more: Callable[[], int]) -> int:
        while self._chance.random() < 0.2:
            added = more()
            self.numbers[name] += added if self._chance.random() < 0.5 else 0
        return super().count(name, more)


@given(st.integers(0, 1 << 30), st.integers(1, 5), st.booleans(), st.booleans())
def test_all_ranks_decide_same_at_same_step(seed: int, count: int, one_fails: bool, is_failing: bool) -> None:
    chance = random.Random(seed)
    everyone = votes(count, FailingStore(chance) if is_failing else Store())
    called = [chance.randrange(1, PATIENCE + 3) for _ in everyone]
    failing = chance.randrange(count) if one_fails else None
    steps = [0] * count
    decided: dict[int, tuple[int, str]] = {}
    while len(decided) < count:
        rank = chance.choice([each for each in range(count) if each not in decided])
        steps[rank] += 1
        made = steps[rank] >= called[rank]
        own = "it differs" if rank == failing else ""
        found = everyone[rank].decide(steps[rank], own if made else None)
        if found is not None:
            decided[rank] = steps[rank], found
    assert len(set(decided.values())) == 1
    step, found = decided[0]
    if found == "":
        assert failing is None
        assert step >= max(called)
