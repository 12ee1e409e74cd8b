"""The viewer of a job asks one rank at a time for its state, and does not wait for ever."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from helpers.hubs import Seen
from helpers.listening import address, run_server

from gradtui.protocol.commands import ShowRank, TraceStep
from gradtui.protocol.events import CommandRejected, Progress, RankEvent, RankStateTaken
from gradtui.remote.job import JobCommands, RankHub, RankLink
from gradtui.remote.job.messages import command_in, state_request, state_requested
from gradtui.remote.job.state_requests import ANSWER_S, StateRequests
from gradtui.remote.serving import Client
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import restored
from gradtui.transport.in_process import CommandQueue

FIRST, SECOND = ShowRank(1, 1), ShowRank(2, 3)


def taken(command: ShowRank) -> RankStateTaken:
    return RankStateTaken(0.0, 0, command.id, "{}")


def refusals(events: list[CommandRejected]) -> list[tuple[ShowRank, str]]:
    return [(each.command, each.reason) for each in events if isinstance(each.command, ShowRank)]


def test_answer_of_asked_rank_is_passed_on_once() -> None:
    requests = StateRequests()
    assert requests.ask(FIRST, connected=True, now=0.0) == []
    assert not requests.answered(3, taken(FIRST))
    assert not requests.answered(1, taken(SECOND))
    assert requests.shown is None
    assert requests.answered(1, taken(FIRST))
    assert requests.shown == 1
    assert not requests.answered(1, taken(FIRST))


def test_silent_rank_is_given_up() -> None:
    requests = StateRequests()
    requests.ask(FIRST, connected=True, now=10.0)
    assert requests.tick(10.0 + ANSWER_S) == []
    assert refusals(requests.tick(10.1 + ANSWER_S)) == [(FIRST, "it has not answered for 5 seconds")]
    assert requests.tick(99.0) == []
    assert not requests.answered(1, taken(FIRST))


def test_a_new_choice_replaces_the_one_before() -> None:
    requests = StateRequests()
    requests.ask(FIRST, connected=True, now=0.0)
    assert refusals(requests.ask(SECOND, connected=True, now=1.0)) == [(FIRST, "another rank was chosen")]
    assert not requests.answered(1, taken(FIRST))
    assert requests.answered(3, taken(SECOND))


def test_a_rank_that_is_not_there_or_leaves() -> None:
    requests = StateRequests()
    assert refusals(requests.ask(FIRST, connected=False, now=0.0)) == [(FIRST, "rank 1 is not connected")]
    requests.ask(FIRST, connected=True, now=0.0)
    assert requests.left(0, "its process is gone", 1.0) == []
    assert refusals(requests.left(1, "its process is gone", 1.0)) == [(FIRST, "its process is gone")]
    requests.ask(FIRST, connected=True, now=0.0)
    assert refusals(requests.restarted(1.0)) == [(FIRST, "the launcher has restarted the ranks")]


def test_the_message_is_no_command() -> None:
    message = json.loads(json.dumps(state_request(FIRST)))
    assert state_requested(message) == FIRST.id
    assert state_requested({"command": {"command": "pause"}, "id": 3}) is None
    assert command_in({"command": {"command": "pause"}, "id": 3}).id == 3


def test_state_over_sockets_comes_between_its_events() -> None:
    seen = Seen()
    hub = RankHub(seen.put, monotonic)
    with tempfile.TemporaryDirectory(prefix="g") as place:
        server = run_server(Path(place), {"join": hub.join})
        server.start()
        hub.start()
        states, links, queues = [RunState(), RunState()], [], [CommandQueue(), CommandQueue()]

        def look(rank: int) -> Callable[[Callable[[RunState], Any]], Any]:
            return lambda at: at(states[rank])

        for rank in (0, 1):
            who = {"rank": rank, "ranks": 2, "local_rank": rank, "generation": 0, "host": "here", "pid": 7}
            client = Client(address(Path(place), server))
            links.append(RankLink(client, who, queues[rank], lambda _: None, look(rank)))
            links[rank].start()

        def step(rank: int, number: int) -> None:
            event = Progress(0.0, number, 1, 1, 0, (1,), (), 0.0, 1, 1)
            apply(states[rank], event)
            links[rank].take([event])

        commands = JobCommands(hub.send)
        step(1, 1)
        seen.wait(lambda event: isinstance(event, RankEvent))
        sent = commands.submit(lambda id_: ShowRank(id_, 1))
        (found,) = seen.wait(lambda event: isinstance(event, RankEvent) and isinstance(event.event, RankStateTaken))
        assert isinstance(found, RankEvent)
        assert isinstance(found.event, RankStateTaken)
        assert (found.rank, found.event.request) == (1, sent.id)
        assert restored(json.loads(found.event.state)).step == 1
        step(1, 2)
        seen.wait(lambda event: isinstance(event, RankEvent) and event.step == 2)
        of_rank = [event.event for event in seen.events if isinstance(event, RankEvent)]
        assert [type(event) for event in of_rank] == [Progress, RankStateTaken, Progress]
        # What one rank can answer is asked of the rank that is shown.
        asked = commands.submit(TraceStep)
        while (command := queues[1].take()) is None:
            queues[1].wait(1.0)
        assert command == asked
        assert queues[0].take() is None
        commands.submit(lambda id_: ShowRank(id_, 7))
        (refused,) = seen.wait(lambda event: isinstance(event, CommandRejected))
        assert isinstance(refused, CommandRejected)
        assert refused.reason == "rank 7 is not connected"
        hub.close()
        server.close()
