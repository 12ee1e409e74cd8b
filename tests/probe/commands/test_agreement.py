"""One rank and what the viewer proposes: what it accepts, and what it does at the step, whatever arrives when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed

from gradtui.probe.commands.agreement import Agreement
from gradtui.probe.torch_private import rendezvous
from gradtui.probe.torch_private.rendezvous import NoStoreError, write_once
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Resume, SetTrainable
from gradtui.text import refusals


class Store:
    """The store of a job: a value is written once. `is_down` makes it fail."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.is_down = False

    def write_once(self, name: str, value: str) -> str:
        if self.is_down:
            raise NoStoreError("the store does not answer")
        return self.values.setdefault(name, value)


class Rank:
    def __init__(self, store: Store) -> None:
        self.answers: list[tuple[int, str | None]] = []
        self.agreement = Agreement(
            lambda command: "there is no b" if getattr(command, "path", "") == "b" else None,
            lambda *answer: self.answers.append(answer),
            store.write_once,
        )

    def take(self, command: Proposal | Confirmation | Cancellation, step: int, *, is_held: bool = False) -> None:
        self.agreement.take(command, step, is_held=is_held)

    def due(self, step: int, *, is_held: bool = False) -> list[tuple[int, str | None]]:
        """Return what is carried out, and what is refused after all: the command's id with None, or with the reason."""
        self.answers.clear()
        carried_out = [(command.id, unknown) for command, unknown in self.agreement.due(step, is_held=is_held)]
        return [*carried_out, *((proposal + 100, why) for proposal, why in self.answers)]


def proposal(id_: int, at_step: int, path: str = "a") -> Proposal:
    return Proposal(id_, SetTrainable(id_ + 100, path, False), at_step)


def test_a_confirmed_command_is_carried_out_at_its_step_and_once() -> None:
    rank = Rank(Store())
    rank.take(proposal(1, 10), 5)
    assert rank.answers == [(1, None)]
    rank.take(Confirmation(0, 1), 6)
    assert [rank.due(step) for step in (6, 9, 10, 11)] == [[], [], [(101, None)], []]


def test_without_a_decision_it_is_carried_out_on_no_rank() -> None:
    store = Store()
    first, second = Rank(store), Rank(store)
    for rank in (first, second):
        rank.take(proposal(1, 10), 5)
    assert first.due(10) == [(101, refusals.NOT_CONFIRMED)]
    # The confirmation comes to the other rank before its step, but after the first has come to it.
    second.take(Confirmation(0, 1), 9)
    assert second.due(10) == [(101, refusals.NOT_CONFIRMED)]


def test_a_rank_that_learns_of_no_confirmation_follows_those_that_did() -> None:
    store = Store()
    first, second = Rank(store), Rank(store)
    for rank in (first, second):
        rank.take(proposal(1, 10), 5)
    first.take(Confirmation(0, 1), 9)
    assert second.due(10) == [(101, None)]
    assert first.due(10) == [(101, None)]


def test_a_cancelled_command_has_its_reason() -> None:
    rank = Rank(Store())
    rank.take(proposal(1, 10), 5)
    rank.take(Cancellation(0, 1, "rank 1 did not answer in time"), 7)
    assert rank.due(10) == [(101, "rank 1 did not answer in time")]


@pytest.mark.parametrize("step", [10, 11])
def test_a_step_that_is_over_is_refused(step: int) -> None:
    rank = Rank(Store())
    rank.take(proposal(1, 10), step)
    ((_, why),) = rank.answers
    assert why == refusals.step_is_over(10, step)
    rank.take(Confirmation(0, 1), step)
    assert rank.due(step) == []


def test_what_this_rank_would_refuse_it_does_not_accept() -> None:
    rank = Rank(Store())
    rank.take(proposal(1, 10, "b"), 5)
    assert rank.answers == [(1, "there is no b")]
    assert rank.due(10) == []


def test_while_the_run_is_held_the_decision_is_awaited_and_then_carried_out_at_once() -> None:
    rank = Rank(Store())
    rank.take(proposal(1, 5), 5, is_held=True)
    assert rank.answers == [(1, None)]
    assert rank.due(5, is_held=True) == []
    rank.take(Confirmation(0, 1), 5, is_held=True)
    assert rank.due(5, is_held=True) == [(101, None)]


def test_a_resume_does_not_wait_for_a_step_that_a_held_run_never_reaches() -> None:
    rank = Rank(Store())
    rank.take(Proposal(1, Resume(101), 20), 5)
    rank.take(proposal(2, 20), 5)
    assert rank.due(6, is_held=True) == [], "it is not confirmed yet"
    for id_ in (1, 2):
        rank.take(Confirmation(0, id_), 6, is_held=True)
    assert rank.due(6, is_held=True) == [(101, None)]
    assert rank.due(20) == [(102, None)]


def test_a_hold_that_ends_without_a_decision_cancels() -> None:
    store = Store()
    rank = Rank(store)
    rank.take(proposal(1, 5), 5, is_held=True)
    assert rank.due(5) == [(101, refusals.NOT_CONFIRMED)]
    assert store.values == {"1": "cancel"}


def test_all_ranks_carry_out_commands_in_the_order_of_steps_and_then_of_ids() -> None:
    store = Store()
    orders = []
    for arrivals in ((3, 1, 2), (2, 3, 1)):
        rank = Rank(store)
        for id_ in arrivals:
            rank.take(proposal(id_, 9 if id_ == 3 else 10), 5)
            rank.take(Confirmation(0, id_), 5)
        orders.append(rank.due(10))
    assert orders == [[(103, None), (101, None), (102, None)]] * 2


def test_a_proposal_is_answered_once() -> None:
    rank = Rank(Store())
    for _ in range(2):
        rank.take(proposal(1, 10), 5)
    assert rank.answers == [(1, None)]
    again = Proposal(2, proposal(1, 10).command, 20)
    rank.take(again, 5)
    assert rank.answers == [(1, None), (2, None)], "a command may be proposed again for a later step"


def test_a_store_that_fails_is_asked_again_at_the_step_and_then_nothing_is_carried_out() -> None:
    store = Store()
    rank = Rank(store)
    rank.take(proposal(1, 10), 5)
    rank.take(proposal(2, 12), 5)
    store.is_down = True
    rank.take(Confirmation(0, 1), 6)
    rank.take(Confirmation(0, 2), 6)
    assert rank.due(10) == [(101, "the store does not answer")]
    store.is_down = False
    store.values["2"] = "commit"
    assert rank.due(12) == [(102, None)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("no gloo")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_the_store_of_the_process_group_keeps_the_first_value_and_its_timeout() -> None:
    store = distributed.distributed_c10d._get_default_store()
    before = store.timeout
    assert [write_once("7", value) for value in ("commit", "cancel")] == ["commit", "commit"]
    assert write_once("8", "cancel") == "cancel"
    assert store.timeout == before
    assert store.get("gradtui/7") == b"commit"
    assert rendezvous._own_connection() is rendezvous._own_connection()


@pytest.mark.usefixtures("group")
def test_a_store_that_does_not_return_holds_up_the_run_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(rendezvous, "_ANSWER_S", 0.05)
    monkeypatch.setattr(rendezvous._Call, "is_stuck", False)
    monkeypatch.setattr(rendezvous, "_compare_set", lambda *_: str(go_on.wait(10)))
    with pytest.raises(NoStoreError, match="does not answer"):
        write_once("1", "commit")
    monkeypatch.setattr(rendezvous, "_compare_set", lambda *_: pytest.fail("it is asked again"))
    with pytest.raises(NoStoreError, match="does not answer"):
        write_once("2", "commit")
    go_on.set()


def test_without_a_process_group_there_is_no_store() -> None:
    with pytest.raises(NoStoreError, match="no process group"):
        write_once("1", "commit")
