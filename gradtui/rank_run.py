"""Connect a process that is one rank of a job to the viewer of that job."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradtui.job import LateRankLink, RankLink
from gradtui.job.link import Identity, Look, identity_of
from gradtui.rank_environment import CONNECT, TOKEN, local_rank_in, rank_in
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
    settings: Settings,
    events: EventQueue,
    commands: CommandQueue,
    say: Callable[[str], None],
    look: Look = lambda _at: None,
) -> RankLink | LateRankLink | None:
    """Connect this rank, if it is one, and begin to send what its viewer sees. A rank without a viewer is the same run.

    The script gets the environment that it has without gradtui, so that no process that it starts becomes a rank. A launcher
    passes the viewer's address on to its ranks.
    """
    if settings.job:
        os.environ[CONNECT] = settings.connect or ""
        return None
    os.environ.pop(CONNECT, None)
    if settings.connect is None:
        return None
    try:
        if rank_in(os.environ) is None and (local_rank := local_rank_in(os.environ)) is not None:
            # Lightning says no more than this to the processes that it starts.
            return linked_late(settings.connect, {**identity_of(), "rank": local_rank}, events, commands, say, look)
        link = _link(_address(settings.connect), commands, say, look, identity_of(), Follower())
    except BadAddressError as error:
        say(f"{error}; this rank has no viewer")
        return None
    finally:
        os.environ.pop(TOKEN, None)
    if link is not None:
        events.follow(link.take)
    return link


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
