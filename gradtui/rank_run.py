"""Connect a process that is one rank of a job to the viewer of that job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradtui.job import RankLink
from gradtui.job.link import identity_of
from gradtui.serving import Client, NoAnswerError, UnixAddress
from gradtui.settings import Settings
from gradtui.transport.in_process import CommandQueue, EventQueue

RANK_DRAIN_S = 0.05
"""Seconds between two looks for new events in a rank: its answers to proposals do not wait longer."""
CONNECT = "GRADTUI_CONNECT"
"""The environment variable that tells a rank where the viewer of its job is: as `Settings.connect`."""


def connected(
    settings: Settings, events: EventQueue, commands: CommandQueue, say: Callable[[str], None]
) -> RankLink | None:
    """Connect this rank, if it is one, and begin to send what its viewer sees. A rank without a viewer is the same run."""
    if settings.connect is None:
        return None
    try:
        link = RankLink(
            Client(UnixAddress(Path(settings.connect))),
            identity_of(),
            commands,
            lambda why: say(f"{why}; training continues"),
        )
    except NoAnswerError as error:
        say(f"{error}; this rank has no viewer")
        return None
    events.follow(link.take)
    link.start()
    return link
