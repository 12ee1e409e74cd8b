"""A viewer whose process is a rank itself: it takes part in proposals without a connection, and the other ranks wait for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from helpers.events import progress
from helpers.hubs import Seen, next_command
from helpers.listening import address, run_server

from gradtui.protocol import commands
from gradtui.protocol.agreement import Confirmation, Proposal
from gradtui.protocol.events import (
    CommandApplied,
    CommandProposed,
    CommandRejected,
    Event,
    PauseChanged,
    PhaseSampled,
    ProcessGroupFound,
    ProposalAnswered,
    ProposalClosed,
    RankEvent,
    RankJoined,
    RankLeft,
    RunEnded,
)
from gradtui.protocol.vocabulary import Phase
from gradtui.remote.job import JobCommands, LateRankLink, OwnCommands, RankHub, RankLink
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.remote.serving.follower import Follower
from gradtui.transport.in_process import CommandQueue


class Family:
    """A run that is rank 0 of two, and has started the other one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.seen = directory, Seen()
        self.commands = OwnCommands()
        self.began = 0
        self.hub = RankHub(self.seen.put, monotonic, self.begins)
        self.server = run_server(directory, {"join": self.hub.join})
        self.server.start()
        self.hub.start()
        self.lost: list[str] = []

    def begins(self) -> None:
        self.began += 1
        self.commands.share(JobCommands(self.hub.send, self.hub.release))

    def child(self, rank: int = 1, generation: int = 0) -> tuple[RankLink, CommandQueue]:
        queue = CommandQueue()
        who = {"rank": rank, "ranks": 2, "local_rank": 1, "generation": generation, "host": "here", "pid": 7}
        link = RankLink(Client(address(self.directory, self.server)), who, queue, self.lost.append)
        link.start()
        return link, queue

    def both(self) -> tuple[RankLink, CommandQueue]:
        self.hub.include_own(self.commands.put)
        self.hub.take_own([group()])
        child = self.child()
        self.seen.wait(lambda event: isinstance(event, RankJoined), 2)
        return child


def group(rank: int = 0, ranks: int = 2) -> ProcessGroupFound:
    return ProcessGroupFound(0.0, 0, rank, ranks, "gloo")


@pytest.fixture
def family() -> Iterator[Family]:
    with tempfile.TemporaryDirectory(prefix="g") as place:
        made = Family(Path(place))
        yield made
        made.hub.close()
        made.server.close()


def test_commands_are_local_until_child_has_joined(family: Family) -> None:
    first = family.commands.submit(commands.Pause)
    assert family.commands.take() == first == commands.Pause(1, origin="keyboard")
    family.hub.include_own(family.commands.put)
    family.hub.take_own([group()])
    second = family.commands.submit(commands.Pause)
    assert family.commands.take() == second
    assert family.began == 0
    family.child()
    family.seen.wait(lambda event: isinstance(event, RankJoined), 2)
    sent = family.commands.submit(commands.Pause)
    proposal = next_command(family.commands)
    assert isinstance(proposal, Proposal)
    assert proposal.command == sent
    assert family.began == 1


def test_other_ranks_wait_until_own_rank_is_known(family: Family) -> None:
    family.hub.include_own(family.commands.put)
    link, _ = family.child()
    link.take([progress(3)])
    family.hub.take_own([progress(2), group()])
    joined = family.seen.wait(lambda event: isinstance(event, RankJoined), 2)
    assert [(each.rank, each.is_viewers) for each in joined if isinstance(each, RankJoined)] == [(0, True), (1, False)]
    (event,) = family.seen.wait(lambda event: isinstance(event, RankEvent))
    assert isinstance(event, RankEvent)
    assert (event.rank, event.event) == (1, progress(3))


def test_a_group_of_one_is_no_job(family: Family) -> None:
    family.hub.include_own(family.commands.put)
    family.hub.take_own([group(0, 1), progress(2)])
    assert family.hub.own_rank is None


def test_a_command_is_agreed_with_this_process_too(family: Family) -> None:
    link, queue = family.both()
    sent = family.commands.submit(lambda id_: commands.SetTrainable(id_, "a", False))
    (proposed,) = family.seen.wait(lambda event: isinstance(event, CommandProposed))
    assert isinstance(proposed, CommandProposed)
    expected = Proposal(proposed.proposal, sent, proposed.at_step, origin="keyboard")
    assert next_command(family.commands) == next_command(queue) == expected
    answer = ProposalAnswered(0.0, 0, proposed.proposal, True)
    link.take([answer])
    family.seen.wait(lambda event: isinstance(event, RankEvent))
    assert len(family.commands) == 0
    family.hub.take_own([answer])
    assert next_command(family.commands) == next_command(queue) == Confirmation(0, proposed.proposal)
    done = CommandApplied(0.0, proposed.at_step, sent, "froze a", ())
    family.hub.take_own([done])
    assert next_command(family.commands) == next_command(queue) == Confirmation(0, proposed.proposal, True)
    link.take([done])
    (closed,) = family.seen.wait(lambda event: isinstance(event, ProposalClosed))
    assert isinstance(closed, ProposalClosed)
    assert (closed.command, closed.confirmed) == (sent.id, True)
    assert [each.did for each in closed.outcomes] == ["made", "made"]


def test_what_this_process_refuses_no_rank_carries_out(family: Family) -> None:
    family.both()
    sent = family.commands.submit(lambda id_: commands.SetTrainable(id_, "a", False))
    (proposed,) = family.seen.wait(lambda event: isinstance(event, CommandProposed))
    assert isinstance(proposed, CommandProposed)
    family.hub.take_own([ProposalAnswered(0.0, 0, proposed.proposal, False, "there is no a")])
    (rejected,) = family.seen.wait(lambda event: isinstance(event, CommandRejected))
    assert isinstance(rejected, CommandRejected)
    assert (rejected.command, rejected.reason) == (sent, "rank 0: there is no a")


def test_held_ranks_are_released_when_viewer_is_gone(family: Family) -> None:
    link, queue = family.both()
    family.commands.close()
    link.take([PauseChanged(0.0, 5, True)])
    family.seen.wait(lambda event: isinstance(event, RankEvent))
    family.hub.take_own([PauseChanged(0.0, 5, True)])
    family.commands.close()
    assert isinstance(next_command(queue), commands.Resume)
    assert isinstance(next_command(family.commands), commands.Resume)


def test_no_connection_is_taken_for_own_rank(family: Family) -> None:
    family.both()
    family.child(rank=0)[0]._receiver.join(60)
    assert len(family.lost) == 1
    with pytest.raises(NoAnswerError, match="was not restarted"):
        family.child(generation=1)


def test_unseen_ranks_keep_change_from_all(family: Family) -> None:
    family.hub.include_own(family.commands.put)
    family.hub.take_own([group(4, 8)])
    link, _ = family.child(rank=1)
    link.take([group(5, 8)])
    family.seen.wait(lambda event: isinstance(event, RankEvent))
    family.commands.submit(lambda id_: commands.SetTrainable(id_, "a", False))
    (rejected,) = family.seen.wait(lambda event: isinstance(event, CommandRejected))
    assert isinstance(rejected, CommandRejected)
    assert rejected.reason == "6 of 8 ranks are not connected"


def test_end_waits_for_last_events_of_ranks(family: Family) -> None:
    link, _ = family.both()
    family.hub.wait_for_ranks(0.01)
    assert not [event for event in family.seen.events if isinstance(event, RankLeft)]
    link.take([RunEnded(1.0, 3, 0, None)])
    family.hub.wait_for_ranks(10)
    assert any(isinstance(each, RankEvent) and isinstance(each.event, RunEnded) for each in family.seen.events)


def test_restarted_ranks_count_only_after_former_ones(family: Family) -> None:
    first, _ = family.child(generation=3)
    (joined,) = family.seen.wait(lambda event: isinstance(event, RankJoined))
    family.child(generation=5)
    _, again = family.seen.wait(lambda event: isinstance(event, RankJoined), 2)
    assert isinstance(joined, RankJoined)
    assert isinstance(again, RankJoined)
    assert (joined.generation, again.generation) == (0, 1)
    first._receiver.join(60)
    assert family.began == 2


class Connected:
    """Stands for a connection to the viewer: remembers who has joined, and with which events."""

    def __init__(self) -> None:
        self.joined: list[tuple[object, object]] = []
        self.finished = 0

    def __call__(self, identity: object, follower: Follower) -> RankLink | None:
        follower.finish()
        self.joined.append((identity, [line for lines in follower.lines() for line in lines]))
        return self  # type: ignore[return-value]

    def finish(self) -> None:
        self.finished += 1


LOADING = PhaseSampled(0.0, 0, Phase.LOAD)


@pytest.mark.parametrize(
    ("events", "rank"), [([group(3, 4)], (3, 4)), ([progress(1)], (0, 2)), ([progress(1), group(3, 4)], (3, 4))]
)
def test_training_process_joins_with_rank_of_group(events: list[Event], rank: tuple[int, int]) -> None:
    connect = Connected()
    link = LateRankLink({"rank": 0, "ranks": 2}, connect)
    link.take([LOADING, group(0, 1)])
    assert connect.joined == []
    link.take(events)
    link.take([LOADING])
    ((identity, lines),) = connect.joined
    assert identity == {"rank": rank[0], "ranks": rank[1]}
    # Nothing of what came before is missing.
    assert '["PhaseSampled",0.0,0,null,"load"]' in lines  # type: ignore[operator]
    link.finish()
    assert connect.finished == 1


def test_a_process_that_trains_nothing_does_not_join() -> None:
    connect = Connected()
    link = LateRankLink({"rank": 0, "ranks": 2}, connect)
    link.take([LOADING, RunEnded(1.0, 0, 0, None)])
    link.finish()
    assert connect.joined == []


def test_a_viewer_that_is_gone_is_asked_once() -> None:
    asked: list[object] = []

    def connect(identity: object, _: Follower) -> None:
        asked.append(identity)

    link = LateRankLink({"rank": 0, "ranks": 2}, connect)
    for step in (1, 2, 3):
        link.take([progress(step)])
    link.finish()
    assert asked == [{"rank": 0, "ranks": 2}]
