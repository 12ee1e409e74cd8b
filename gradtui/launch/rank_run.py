"""Connect a process that is one rank of a job to the viewer of that job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from gradtui.configuration.settings import Settings
from gradtui.launch.found_viewer import announce, has_other_nodes, look_for_viewer
from gradtui.remote.job import LateRankLink, RankLink
from gradtui.remote.job.link import Identity, Look, identity_of
from gradtui.remote.serving.addresses import (
    Address,
    BadAddressError,
    TcpAddress,
    UnixAddress,
    check_token,
    host_and_port,
)
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.remote.serving.follower import Follower
from gradtui.system.rank_environment import ANNOUNCE, CONNECT, OUTPUT, TOKEN, local_rank_in, rank_in
from gradtui.transport.in_process import CommandQueue, EventQueue

RANK_DRAIN_S = 0.05
"""Seconds between two looks for new events in a rank: its answers to proposals do not wait longer."""


def connected(
    settings: Settings,
    events: EventQueue,
    commands: CommandQueue,
    say: Callable[[str], None],
    look: Look = lambda _at: None,
) -> Sequence[RankLink | LateRankLink]:
    """Connect this rank, if it is one, and begin to send what its viewer sees. A rank without a viewer is the same run.

    The script gets the environment that it has without gradtui, so that no process that it starts becomes a rank. A launcher
    passes the viewer's address on to its ranks. A rank of another node than the viewer's may get a second link, when it has
    found the viewer.
    """
    if settings.job:
        os.environ[CONNECT] = settings.connect or ""
        return ()
    environ = dict(os.environ)
    for name in (CONNECT, OUTPUT, ANNOUNCE):
        os.environ.pop(name, None)
    if settings.connect is None:
        return ()
    if OUTPUT in environ:
        from gradtui.runner.rank_output import use_own_log

        use_own_log(environ)
    links: list[RankLink | LateRankLink] = []
    try:
        if rank_in(environ) is None and (local_rank := local_rank_in(environ)) is not None:
            # Lightning says no more than this to the processes that it starts.
            who = {**identity_of(environ), "rank": local_rank}
            links.append(linked_late(settings.connect, who, events, commands, say, look))
        elif (
            link := _link(_address(settings.connect), commands, say, look, identity_of(environ), Follower())
        ) is not None:
            events.follow(link.take)
            links.append(link)
    except BadAddressError as error:
        say(f"{error}; this rank has no viewer")
    finally:
        os.environ.pop(TOKEN, None)
    _meet_other_nodes(settings.connect, environ, events, commands, say, look, links)
    return links


def _meet_other_nodes(
    connect: str,
    environ: Mapping[str, str],
    events: EventQueue,
    commands: CommandQueue,
    say: Callable[[str], None],
    look: Look,
    links: list[RankLink | LateRankLink],
) -> None:
    """Say to the ranks of other nodes where the viewer is, or find out from them."""
    if not has_other_nodes(environ):
        return
    if ANNOUNCE in environ:
        announce(events, environ[ANNOUNCE], environ.get(TOKEN, ""), environ)
    elif os.path.isabs(connect):

        def begin(client: Client, follower: Follower) -> None:
            found = RankLink(
                client, identity_of(environ), commands, lambda why: say(f"{why}; training continues"), look, follower
            )
            found.start()
            links.append(found)

        look_for_viewer(events, Follower(), begin, say)


def linked_late(
    connect: str,
    identity: Identity,
    events: EventQueue,
    commands: CommandQueue,
    say: Callable[[str], None],
    look: Look,
) -> LateRankLink:
    """Connect this process with a viewer once it trains. Its process group says which rank it is, or else `identity`.

    Raises:
        BadAddressError: `connect` is no address.
    """
    link = LateRankLink(identity, partial(_link, _address(connect), commands, say, look))
    events.follow(link.take)
    return link


def _link(
    address: Address,
    commands: CommandQueue,
    say: Callable[[str], None],
    look: Look,
    identity: Identity,
    follower: Follower,
) -> RankLink | None:
    try:
        link = RankLink(
            Client(address), identity, commands, lambda why: say(f"{why}; training continues"), look, follower
        )
    except NoAnswerError as error:
        say(f"{error}; this rank has no viewer")
        return None
    link.start()
    return link


def _address(connect: str) -> Address:
    """Return the address of a viewer. Raises `BadAddressError`."""
    if not connect:
        raise BadAddressError("the launcher could not open a socket for its ranks")
    if os.path.isabs(connect):
        return UnixAddress(Path(connect))
    host, port = host_and_port(connect)
    try:
        return TcpAddress(host, port, check_token(os.environ.get(TOKEN, "")))
    except BadAddressError as error:
        raise BadAddressError(f"no connection to {connect} without its token in {TOKEN}: {error}") from None
