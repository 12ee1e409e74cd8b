"""Ranks of other nodes find the viewer through the store of their job, and send it their events from the beginning."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from time import monotonic

import pytest
from helpers.events import progress
from helpers.waiting import wait_until

from gradtui.launch import found_viewer
from gradtui.launch.found_viewer import addresses_in, announce, has_other_nodes, look_for_viewer
from gradtui.launch.listening import let_others_find
from gradtui.protocol.events import Event, ProcessGroupFound, Progress, RankEvent
from gradtui.remote.job import RankHub, RankLink
from gradtui.remote.serving.addresses import TcpAddress
from gradtui.remote.serving.client import Client
from gradtui.remote.serving.follower import Follower
from gradtui.remote.serving.server import RunServer
from gradtui.transport.in_process import CommandQueue, EventQueue

TOKEN = "a-token-of-this-test"
WHO = {"rank": 1, "ranks": 2, "local_rank": 0, "generation": 0, "host": "elsewhere", "pid": 7}
GROUP = ProcessGroupFound(0.0, 0, 1, 2, "gloo")


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
def port(seen: list[Event]) -> Iterator[int]:
    hub = RankHub(seen.append, monotonic)
    server = RunServer({"join": hub.join})
    made = server.listen_on(TcpAddress("127.0.0.1", 0, TOKEN)).port
    server.start()
    hub.start()
    yield made
    hub.close()
    server.close()


class Rank:
    """A rank of another node."""

    def __init__(self) -> None:
        self.events, self.follower = EventQueue(), Follower()
        self.links: list[RankLink] = []
        self.said: list[str] = []
        look_for_viewer(self.events, self.follower, self._connect, self.said.append)

    def _connect(self, client: Client, follower: Follower) -> None:
        link = RankLink(client, WHO, CommandQueue(), self.said.append, follower=follower)
        link.start()
        self.links.append(link)


@pytest.mark.usefixtures("process_group")
def test_viewer_gets_all_events_of_late_rank(port: int, seen: list[Event]) -> None:
    rank = Rank()
    rank.events.seen([progress(1)])
    rank.events.seen([GROUP, progress(2)])
    viewers = EventQueue()
    announce(viewers, f"127.0.0.1:{port}", TOKEN, {})
    viewers.seen([progress(1)])
    assert not seen
    viewers.seen([GROUP])
    wait_until(lambda: rank.links, "a link")
    rank.events.seen([progress(3)])
    wait_until(lambda: len([each for each in seen if isinstance(each, RankEvent)]) >= 4, "four events")
    steps = [each.event.step for each in seen if isinstance(each, RankEvent) and isinstance(each.event, Progress)]
    assert steps == [1, 2, 3]
    assert rank.said == []
    rank.links[0].finish()


@pytest.mark.usefixtures("process_group")
def test_without_a_viewer_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_viewer, "_TRIES", 1)
    monkeypatch.setattr(found_viewer, "_AGAIN_S", 0.0)
    rank = Rank()
    rank.events.seen([GROUP])
    wait_until(lambda: rank.follower.is_over, "the end")
    assert (rank.links, rank.said) == ([], [])


@pytest.mark.usefixtures("process_group")
def test_viewer_that_cannot_be_reached_is_said_once() -> None:
    rank, viewers = Rank(), EventQueue()
    announce(viewers, "127.0.0.1:1", TOKEN, {})
    viewers.seen([GROUP])
    rank.events.seen([GROUP])
    wait_until(lambda: rank.follower.is_over, "the end")
    assert len(rank.said) == 1
    assert "127.0.0.1:1; nothing listens there" in rank.said[0]


def test_without_group_nothing_is_written_and_nothing_raised() -> None:
    viewers = EventQueue()
    announce(viewers, "127.0.0.1:7000", TOKEN, {})
    viewers.seen([GROUP])


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "7", "[" * 100_000, '{"hosts": "a", "port": 7, "token": "' + TOKEN + '"}',
        '{"hosts": ["a"], "port": 70000, "token": "' + TOKEN + '"}', '{"hosts": ["a"], "port": true, "token": "' + TOKEN + '"}',
        '{"hosts": [1, "", "' + "a" * 300 + '"], "port": 7, "token": "' + TOKEN + '"}',
        '{"hosts": ["a"], "port": 7, "token": "short"}', '{"hosts": ["a"], "port": 7, "token": 7}',
    ],
)  # fmt: skip
def test_what_others_write_into_the_store_is_checked(text: str) -> None:
    assert list(addresses_in(text)) == []


def test_no_more_than_some_addresses_are_tried() -> None:
    found = addresses_in(json.dumps({"hosts": [f"host{number}" for number in range(50)], "port": 7, "token": TOKEN}))
    assert [address.name for address in found] == ["host0:7", "host1:7", "host2:7", "host3:7"]


def test_only_jobs_of_several_nodes_look() -> None:
    assert has_other_nodes({"GROUP_WORLD_SIZE": "2"})
    assert not any(has_other_nodes({"GROUP_WORLD_SIZE": size}) for size in ("1", "", "x", "²"))
    assert not has_other_nodes({})


@pytest.mark.parametrize(
    ("host", "is_told"), [("0.0.0.0", True), ("10.0.0.7", True), ("127.0.0.1", False), ("localhost", False)]
)
def test_ranks_get_address_reachable_from_other_nodes(
    host: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environ)
    server = RunServer({})
    server.tcp_address = TcpAddress(host, 7000, TOKEN)
    let_others_find(server)
    assert environ == ({"GRADTUI_ANNOUNCE": f"{host}:7000", "GRADTUI_TOKEN": TOKEN} if is_told else {})
    environ.clear()
    server.tcp_address = TcpAddress(host, 7000, TOKEN, ssl.create_default_context())
    let_others_find(server)
    assert environ == {}
