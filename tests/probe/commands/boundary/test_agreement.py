"""One rank and what the viewer proposes: what it accepts, and what it does at the step, whatever arrives when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from helpers.slow_store import Connection, Values, no_wait
from torch import distributed

from gradtui.probe.commands.boundary import agreement
from gradtui.probe.commands.boundary.agreement import Agreement
from gradtui.probe.torch_private import rendezvous
from gradtui.probe.torch_private.rendezvous import JobStore, NoStoreError, answer_to
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Resume, SetTrainable
from gradtui.run.text import refusals


class Rank:
    """A rank with its connection to the values of all ranks."""

    def __init__(
        self, values: Values | None = None, *, is_slow: bool = False, wait_for: Callable[[Future[Any]], None] = no_wait
    ) -> None:
        self.answers: list[tuple[int, str | None]] = []
        self.store = Connection(values if values is not None else {}, is_slow=is_slow)
        self.agreement = Agreement(
            lambda command: "there is no b" if getattr(command, "path", "") == "b" else None,
            lambda *answer: self.answers.append(answer),
            self.store,
            wait_for,
        )

    def take(self, command: Proposal | Confirmation | Cancellation, step: int, *, is_held: bool = False) -> None:
        self.agreement.take(command, step, is_held=is_held)

    def due(self, step: int, *, is_held: bool = False) -> list[tuple[int, str | None]]:
        """Return what is carried out, and what is refused after all: the command's id with None, or with the reason.

        As at a step boundary, it waits as long as nothing is decided."""
        self.answers.clear()
        found: list[tuple[int, str | None]] = []
        while True:
            found += [(command.id, unknown) for command, unknown in self.agreement.due(step, is_held=is_held)]
            if not self.agreement.is_awaited:
                return [*found, *((proposal + 100, why) for proposal, why in self.answers)]
            self.agreement.wait()


def proposal(id_: int, at_step: int, path: str = "a") -> Proposal:
    return Proposal(id_, SetTrainable(id_ + 100, path, False), at_step)


def test_confirmed_command_is_carried_out_once() -> None:
    rank = Rank()
    rank.take(proposal(1, 10), 5)
    assert rank.answers == [(1, None)]
    rank.take(Confirmation(0, 1), 6)
    assert [rank.due(step) for step in (6, 9, 10, 11)] == [[], [], [(101, None)], []]


def test_undecided_command_is_carried_out_nowhere() -> None:
    values: Values = {}
    first, second = Rank(values), Rank(values)
    for rank in (first, second):
        rank.take(proposal(1, 10), 5)
    assert first.due(10) == [(101, refusals.NOT_CONFIRMED)]
    # The confirmation comes to the other rank before its step, but after the first has come to it.
    second.take(Confirmation(0, 1), 9)
    assert second.due(10) == [(101, refusals.NOT_CONFIRMED)]


def test_rank_without_confirmation_follows_others() -> None:
    values: Values = {}
    first, second = Rank(values), Rank(values)
    for rank in (first, second):
        rank.take(proposal(1, 10), 5)
    first.take(Confirmation(0, 1), 9)
    assert second.due(10) == [(101, None)]
    assert first.due(10) == [(101, None)]


def test_a_cancelled_command_is_forgotten_without_the_store() -> None:
    rank = Rank()
    rank.take(proposal(1, 10), 5)
    rank.store.is_down = True
    rank.take(Cancellation(0, 1), 7)
    assert rank.due(10) == []


@pytest.mark.parametrize("step", [10, 11])
def test_a_step_that_is_over_is_refused(step: int) -> None:
    rank = Rank()
    rank.take(proposal(1, 10), step)
    ((_, why),) = rank.answers
    assert why == refusals.step_is_over(10, step)
    rank.take(Confirmation(0, 1), step)
    assert rank.due(step) == []


def test_rank_does_not_accept_what_it_would_refuse() -> None:
    rank = Rank()
    rank.take(proposal(1, 10, "b"), 5)
    assert rank.answers == [(1, "there is no b")]
    assert rank.due(10) == []


def test_held_run_awaits_decision_and_acts_at_once() -> None:
    rank = Rank()
    rank.take(proposal(1, 5), 5, is_held=True)
    assert rank.answers == [(1, None)]
    assert rank.due(5, is_held=True) == []
    rank.take(Confirmation(0, 1), 5, is_held=True)
    assert rank.due(5, is_held=True) == [(101, None)]


def test_resume_does_not_wait_for_unreachable_step() -> None:
    rank = Rank()
    rank.take(Proposal(1, Resume(101), 20), 5)
    rank.take(proposal(2, 20), 5)
    assert rank.due(6, is_held=True) == [], "it is not confirmed yet"
    for id_ in (1, 2):
        rank.take(Confirmation(0, id_), 6, is_held=True)
    assert rank.due(6, is_held=True) == [(101, None)]
    assert rank.due(20) == [(102, None)]


def test_a_hold_that_ends_without_a_decision_cancels() -> None:
    rank = Rank()
    rank.take(proposal(1, 5), 5, is_held=True)
    assert rank.due(5) == [(101, refusals.NOT_CONFIRMED)]
    assert rank.store.values == {"1": "cancel"}


def test_commands_run_by_step_and_then_id() -> None:
    values: Values = {}
    orders = []
    for arrivals in ((3, 1, 2), (2, 3, 1)):
        rank = Rank(values)
        for id_ in arrivals:
            rank.take(proposal(id_, 9 if id_ == 3 else 10), 5)
            rank.take(Confirmation(0, id_), 5)
        orders.append(rank.due(10))
    assert orders == [[(103, None), (101, None), (102, None)]] * 2


def test_a_proposal_is_answered_once() -> None:
    rank = Rank()
    for _ in range(2):
        rank.take(proposal(1, 10), 5)
    assert rank.answers == [(1, None)]
    again = Proposal(2, proposal(1, 10).command, 20)
    rank.take(again, 5)
    assert rank.answers == [(1, None), (2, None)], "a command may be proposed again for a later step"


def test_rank_accepts_only_after_store_has_answered() -> None:
    rank = Rank(is_slow=True)
    rank.take(proposal(1, 10), 5)
    assert rank.due(6) == []
    assert rank.agreement.open, "training looks again at the next boundary"
    rank.store.answer()
    assert rank.due(7) == [(101, None)], "the answer to the proposal"
    assert rank.agreement.open[1].is_accepted


def test_rank_with_slow_store_refuses_without_waiting() -> None:
    rank = Rank(is_slow=True)
    rank.take(proposal(1, 10), 5)
    assert rank.due(10) == [(101, refusals.STORE_IS_SLOW)]
    rank.take(Confirmation(0, 1), 11)
    rank.store.answer()
    assert rank.due(11) == []
    assert rank.store.values == {}
    rank.store.is_slow = False
    rank.take(proposal(2, 20), 12)
    assert rank.answers == [(2, None)], "it takes part in what is proposed later"


def test_a_rank_whose_store_fails_refuses() -> None:
    rank = Rank()
    rank.store.is_down = True
    rank.take(proposal(1, 10), 5)
    assert rank.answers == [(1, "the store does not answer")]
    assert rank.due(10) == []


@pytest.mark.parametrize("decision", ["commit", "cancel"])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_accepting_rank_waits_for_failing_store(decision: str, is_confirmed: bool) -> None:
    def wait_for(_asked: Future[Any]) -> None:
        waits.append(rank)
        rank.store.is_down = len(waits) < 9

    waits: list[Rank] = []
    rank = Rank(wait_for=wait_for)
    rank.take(proposal(1, 10), 5)
    rank.store.is_down = True
    if is_confirmed:
        rank.take(Confirmation(0, 1), 6)
    rank.store.values["1"] = decision
    assert rank.due(9) == []
    assert rank.due(10) == [(101, None if decision == "commit" else refusals.NOT_CONFIRMED)]
    assert len(waits) == 10


class Clock:
    """The time of a machine, and of a process on it that is stopped during some waits. The store answers at `answers_at`."""

    def __init__(self, answers_at: float, stops: dict[int, float]) -> None:
        self.now, self.waits, self.answers_at, self.stops = 0.0, 0, answers_at, stops
        self.rank = Rank(is_slow=True, wait_for=self.wait)

    def wait(self, _asked: Future[Any]) -> None:
        # While it is stopped, no thread of the process runs: what the store has sent is read after that.
        is_there = self.now + rendezvous.PIECE_S >= self.answers_at
        self.now += rendezvous.PIECE_S + self.stops.get(self.waits, 0.0)
        self.waits += 1
        if is_there:
            self.rank.store.answer()


@pytest.mark.parametrize("stops", [{}, {0: 6.0}, {1: 3_600.0, 2: 3_600.0}, dict.fromkeys(range(50), 60.0)])
def test_stopped_process_does_not_spend_its_patience(stops: dict[int, float]) -> None:
    clock = Clock(0.0, stops)
    clock.rank.take(proposal(1, 10), 5)
    assert clock.rank.answers == [(1, None)]
    clock.answers_at = clock.now + 6.5 + sum(seconds for wait, seconds in stops.items() if wait >= clock.waits)
    clock.rank.store.values["1"] = "commit"
    assert clock.rank.due(10) == [(101, None)]
    assert clock.rank.store.given_up is None


def test_dead_store_delays_run_by_one_minute() -> None:
    clock = Clock(0.0, {})
    rank = clock.rank
    for id_ in (1, 2):
        rank.take(proposal(id_, 10), 5)
    clock.answers_at, began = float("inf"), clock.now
    why = refusals.missed_a_decision(10)
    assert rank.due(10) == [(101, why), (102, why)]
    assert 59 < clock.now - began < 61
    rank.take(proposal(3, 20), 11)
    assert rank.answers == [(3, why)]
    assert clock.now - began < 61


def test_what_another_rank_has_read_ends_the_wait() -> None:
    def wait_for(_asked: Future[Any]) -> None:
        rank.take(Confirmation(0, 1, True), 10)

    rank = Rank(wait_for=wait_for)
    rank.take(proposal(1, 10), 5)
    rank.store.is_down = True
    assert rank.due(10) == [(101, None)]


def test_failing_call_is_repeated_while_held() -> None:
    rank = Rank()
    rank.take(proposal(1, 5), 5, is_held=True)
    rank.store.is_down = True
    rank.take(Confirmation(0, 1), 5, is_held=True)
    assert [rank.due(5, is_held=True) for _ in range(2)] == [[], []]
    rank.store.is_down = False
    rank.due(5, is_held=True)
    assert rank.due(5, is_held=True) == [(101, None)]


def test_undecided_command_keeps_back_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank()
    for id_ in (1, 2):
        rank.take(proposal(id_, 10), 5)
    rank.take(Confirmation(0, 2), 6)
    rank.store.is_slow = True
    assert list(rank.agreement.due(10, is_held=False)) == []
    assert rank.agreement.is_awaited
    monkeypatch.setattr(agreement, "PIECES", 3)
    assert rank.due(10) == [(101, refusals.missed_a_decision(10)), (102, None)]


def now(asked: Future[Any]) -> Any:
    return asked.result(timeout=60)


@pytest.mark.usefixtures("process_group")
def test_store_keeps_first_value_and_timeout() -> None:
    store, mine = distributed.distributed_c10d._get_default_store(), JobStore()
    before = store.timeout
    assert now(mine.write_once("7", "")) == ""
    assert [now(mine.write_once("7", value)) for value in ("commit", "cancel", "")] == ["commit"] * 3
    assert [now(mine.count("n", more)) for more in (1, 0, 2)] == [1, 1, 3]
    assert store.timeout == before
    assert store.get("gradtui/7") == b"commit"


@pytest.mark.usefixtures("process_group")
def test_call_after_failure_has_new_connection() -> None:
    mine = JobStore()
    assert now(mine.write_once("1", "commit")) == "commit"
    before = mine._connection
    with pytest.raises(NoStoreError, match=r"does not answer \(ZeroDivisionError\)"):
        now(mine._ask(lambda _: 1 // 0))
    assert now(mine.write_once("1", "cancel")) == "commit"
    assert mine._connection is not before


def test_open_commands_are_asked_after_group_is_destroyed(tmp_path: Path) -> None:
    mine = JobStore()
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert now(mine.write_once("1", "commit")) == "commit"
    finally:
        distributed.destroy_process_group()
    assert now(mine.write_once("1", "cancel")) == "commit"


@pytest.mark.usefixtures("process_group")
def test_slow_call_is_awaited_and_failed_one_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PIECE_S", 0.01)
    mine, goes_on = JobStore(), threading.Event()
    slow = mine._ask(lambda _: goes_on.wait(60))
    later = mine.write_once("1", "commit")
    rendezvous.wait_a_piece(later)
    assert not later.done()
    goes_on.set()
    assert now(later) == "commit"
    assert now(slow) is True
    failing = iter([1, 1, 0])
    assert answer_to(lambda: mine._ask(lambda _: 1 // (1 - next(failing)))) == 1
    monkeypatch.setattr(rendezvous, "PIECES", 3)
    with pytest.raises(NoStoreError, match="does not answer"):
        answer_to(lambda: mine._ask(lambda _: 1 // 0))
    mine.given_up = "it was not there"
    with pytest.raises(NoStoreError, match="it was not there"):
        answer_to(lambda: mine.write_once("1", "commit"))


def test_without_a_process_group_there_is_no_store() -> None:
    with pytest.raises(NoStoreError, match="no process group"):
        answer_to(lambda: JobStore().write_once("1", "commit"))
