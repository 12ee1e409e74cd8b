"""Connect a process that is one rank of a job to the viewer of that job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from gradtui.found_viewer import announce, has_other_nodes, look_for_viewer
from gradtui.job import RankLink
from gradtui.job.link import identity_of
from gradtui.rank_environment import ANNOUNCE, CONNECT, OUTPUT, TOKEN
from gradtui.serving import (
    Address,
    BadAddressError,
    Client,
    Follower,
    NoAnswerError,
    TcpAddress,
    UnixAddress,
    check_token,
    host_and_port,
)
from gradtui.settings import Settings
from gradtui.transport.in_process import CommandQueue, EventQueue

RANK_DRAIN_S = 0.05
"""Seconds between two looks for new events in a rank: its answers to proposals do not wait longer."""


def connected(
    settings: Settings, events: EventQueue, commands: CommandQueue, say: Callable[[str], None]
) -> Sequence[RankLink]:
    """Connect this rank, if it is one, and begin to send what its viewer sees. A rank without a viewer is the same run.

    The script gets the environment that it has without gradtui, so that no process that it starts becomes a rank. A launcher
    passes the viewer's address on to its ranks. A rank of another node than the viewer's may get a second link, when it has
    found the viewer.
    """
    if settings.job:
        os.environ[CONNECT] = settings.connect or ""
        return ()
    links: list[RankLink] = []
    environ = dict(os.environ)
    for name in (CONNECT, OUTPUT, ANNOUNCE):
        os.environ.pop(name, None)
    if settings.connect is None:
        return links
    if OUTPUT in environ:
        from gradtui.runner.rank_output import use_own_log

        use_own_log(environ)
    try:
        if (link := _link(settings.connect, events, commands, say)) is not None:
            links.append(link)
    finally:
        os.environ.pop(TOKEN, None)
    if not has_other_nodes(environ):
        return links
    if ANNOUNCE in environ:
        announce(events, environ[ANNOUNCE], environ.get(TOKEN, ""), environ)
    elif os.path.isabs(settings.connect):

        def connect(client: Client, follower: Follower) -> None:
            found = RankLink(client, identity_of(), commands, lambda why: say(f"{why}; training continues"), follower)
            found.start()
            links.append(found)

        look_for_viewer(events, Follower(), connect, say)
    return links


def _link(connect: str, events: EventQueue, commands: CommandQueue, say: Callable[[str], None]) -> RankLink | None:
    try:
        link = RankLink(
            Client(_address(connect)),
            identity_of(),
            commands,
            lambda why: say(f"{why}; training continues"),
        )
    except (NoAnswerError, BadAddressError) as error:
        say(f"{error}; this rank has no viewer")
        return None
    events.follow(link.take)
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
