"""Ranks and the hub of their viewer over real sockets, without torch: events arrive, commands return, every end is said."""

from __future__ import annotations

import os
import socket
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
    ProposalAnswered,
    ProposalClosed,
    RankEvent,
    RankJoined,
    RankLeft,
    RanksHeard,
    RunEnded,
)
from gradtui.remote.job import JobCommands, RankHub, RankLink
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.transport.in_process import CommandQueue


class Job:
    def __init__(self, directory: Path) -> None:
        self.directory, self.seen = directory, Seen()
        self.hub = RankHub(self.seen.put, monotonic)
        self.server = run_server(directory, {"join": self.hub.join})
        self.server.start()
        self.hub.start()
        self.commands = JobCommands(self.hub.send)
        self.lost: list[str] = []

    def rank(
        self, number: int, size: int = 2, generation: int = 0, host: str = "elsewhere", pid: int = 7
    ) -> tuple[RankLink, CommandQueue]:
        queue = CommandQueue()
        who = {"rank": number, "ranks": size, "local_rank": number, "generation": generation, "host": host, "pid": pid}
        link = RankLink(Client(address(self.directory, self.server)), who, queue, self.lost.append)
        link.start()
        return link, queue


@pytest.fixture
def job() -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="g") as place:
        made = Job(Path(place))
        yield made
        made.hub.close()
        made.server.close()


def test_events_arrive_with_rank_and_in_order(job: Job) -> None:
    links = [job.rank(number)[0] for number in range(2)]
    for number, link in enumerate(links):
        link.take([progress(10 * number + 1), progress(10 * number + 2)])
    found = job.seen.wait(lambda event: isinstance(event, RankEvent), 4)
    # Each link has a thread of its own: either may be first.
    assert sorted(event.rank for event in job.seen.events if isinstance(event, RankJoined)) == [0, 1]
    for number in range(2):
        mine = [event.event for event in found if isinstance(event, RankEvent) and event.rank == number]
        assert mine == [progress(10 * number + 1), progress(10 * number + 2)]
    for number, link in enumerate(links):
        link.take([RunEnded(1.0, 10 * number + 2, 0, None)])
        link.finish()
    left = job.seen.wait(lambda event: isinstance(event, RankLeft), 2)
    assert [event.reason for event in left if isinstance(event, RankLeft)] == ["", ""]
    assert job.lost == []


def test_command_is_proposed_to_all_ranks_and_confirmed(job: Job) -> None:
    ranks = [job.rank(number) for number in range(2)]
    for link, _ in ranks:
        link.take([progress(5)])
    job.seen.wait(lambda event: isinstance(event, RankEvent), 2)
    sent = job.commands.submit(lambda id_: commands.SetTrainable(id_, "a", False))
    (proposed,) = job.seen.wait(lambda event: isinstance(event, CommandProposed))
    assert isinstance(proposed, CommandProposed)
    assert proposed.command == sent
    for link, queue in ranks:
        proposal = next_command(queue)
        assert proposal == Proposal(proposed.proposal, sent, proposed.at_step)
        assert isinstance(proposal, Proposal)
        assert proposal.command.origin == "keyboard"
        link.take([ProposalAnswered(0.0, 6, proposal.id, True)])
    assert [next_command(queue) for _, queue in ranks] == [Confirmation(0, proposed.proposal)] * 2
    for link, _ in ranks:
        link.take([CommandApplied(0.0, proposed.at_step, sent, "froze a", ())])
    (closed,) = job.seen.wait(lambda event: isinstance(event, ProposalClosed))
    assert isinstance(closed, ProposalClosed)
    assert (closed.command, closed.confirmed) == (sent.id, True)


@pytest.fixture
def dead() -> int:
    """The id of a process that has ended, and that its parent has not waited for."""
    made = os.fork()
    if made == 0:
        os._exit(0)
    os.waitid(os.P_PID, made, os.WEXITED | os.WNOWAIT)
    return made


def test_killed_rank_is_said_and_others_stay(job: Job, dead: int) -> None:
    first, second = job.rank(0)[0], job.rank(1, host=socket.gethostname(), pid=dead)[0]
    second.take([progress(3)])
    job.seen.wait(lambda event: isinstance(event, RankEvent))
    second._client.close()
    (left,) = job.seen.wait(lambda event: isinstance(event, RankLeft))
    assert isinstance(left, RankLeft)
    assert (left.rank, left.step, left.reason, left.is_over) == (1, 3, "its process is gone", True)
    os.waitpid(dead, 0)
    first.take([progress(4)])
    job.seen.wait(lambda event: isinstance(event, RankEvent) and event.rank == 0)


@pytest.mark.parametrize(
    ("host", "is_over", "reason"),
    [
        (socket.gethostname(), False, "the connection is lost; its process is alive, and may train on"),
        ("elsewhere", None, "the connection is lost; it may train on"),
    ],
)
def test_cut_off_rank_is_not_called_dead(job: Job, host: str, is_over: bool | None, reason: str) -> None:
    job.rank(1, host=host, pid=os.getpid())[0]._client.close()
    (left,) = job.seen.wait(lambda event: isinstance(event, RankLeft))
    assert isinstance(left, RankLeft)
    assert (left.is_over, left.reason) == (is_over, reason)


def test_vanished_viewer_releases_what_it_holds(job: Job) -> None:
    link, queue = job.rank(0, 1)
    assert not queue.closed
    job.seen.wait(lambda event: isinstance(event, RankJoined))
    job.hub.close()
    link._receiver.join(60)
    assert queue.closed
    assert job.lost == ["the connection to the viewer of the job is lost"]
    link.take([progress(1)])
    link.finish()


def test_restarted_rank_takes_place_of_its_former_self(job: Job) -> None:
    job.rank(0, 1)
    job.seen.wait(lambda event: isinstance(event, RankJoined))
    again, _ = job.rank(0, 1, generation=1)
    again.take([progress(1)])
    (event,) = job.seen.wait(lambda event: isinstance(event, RankEvent))
    assert isinstance(event, RankEvent)
    assert event.generation == 1
    with pytest.raises(NoAnswerError, match="generation 0 is over"):
        job.rank(0, 1, generation=0)


def test_silence_is_measured(job: Job) -> None:
    job.rank(0, 1)
    (heard,) = job.seen.wait(lambda event: isinstance(event, RanksHeard))
    assert isinstance(heard, RanksHeard)
    ((rank, seconds),) = heard.silent
    assert rank == 0
    assert 0 <= seconds < 60


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"rank": -1}, "rank is a whole number"), ({"rank": 2}, "no rank 2 of 2"), ({"host": 7}, "host is the name"),
     ({"pid": True}, "pid is a whole number")],
)  # fmt: skip
def test_what_is_no_rank_is_refused(job: Job, wrong: dict[str, object], reason: str) -> None:
    who = {"rank": 0, "ranks": 2, "local_rank": 0, "generation": 0, "host": "here", "pid": 7} | wrong
    with pytest.raises(NoAnswerError, match=reason):
        RankLink(Client(address(job.directory, job.server)), who, CommandQueue(), job.lost.append)


def test_garbage_ends_the_connection_of_that_rank_only(job: Job) -> None:
    link, _ = job.rank(0, 1)
    link._client.send_lines(["no JSON"])
    (left,) = job.seen.wait(lambda event: isinstance(event, RankLeft))
    assert isinstance(left, RankLeft)
    assert "it may train on" in left.reason
