"""The connection of a rank to the viewer of its job. Losing it costs the run nothing: the rank trains on without a viewer."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.events import Event, ProcessGroupFound, Progress, RankStateTaken
from gradtui.protocol.foreign_text import from_json
from gradtui.protocol.json_text import to_line
from gradtui.remote.job.messages import command_in, state_requested
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.remote.serving.follower import Follower
from gradtui.run.state.run_state import RunState
from gradtui.run.state.snapshot import snapshot
from gradtui.system.own_thread import OwnThread
from gradtui.transport.in_process import CommandQueue

_END_S = 5.0
"""Seconds that the end of the run waits for the viewer to receive the last events."""


Look = Callable[[Callable[[RunState], Any]], Any]
Identity = Mapping[str, Any]


def identity_of(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what a rank says of itself, from the environment that torchrun and Slurm give it."""

    def number(*names: str, default: int = 0) -> int:
        found = (environ.get(name, "") for name in names)
        return next((int(text) for text in found if text.isascii() and text.isdigit()), default)

    return {
        "rank": number("RANK", "SLURM_PROCID"),
        "ranks": number("WORLD_SIZE", "SLURM_NTASKS", default=1),
        "local_rank": number("LOCAL_RANK", "SLURM_LOCALID"),
        "generation": number("TORCHELASTIC_RESTART_COUNT"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }


class RankLink:
    """Sends the events of this rank to the viewer, and receives its commands, on threads of its own.

    Args:
        client: a connection to the viewer.
        identity: what `identity_of` returns.
        commands: where the viewer's commands go.
        lost: a function that receives a message if the connection ends before the run does.
        look: applies a function to the state of this rank, after `take` has received all events that are in the state.
        follower: has the events so far.

    Raises:
        NoAnswerError: the viewer does not answer, or does not accept this rank.
    """

    def __init__(
        self,
        client: Client,
        identity: Identity,
        commands: CommandQueue,
        lost: Callable[[str], None],
        look: Look = lambda _at: None,
        follower: Follower | None = None,
    ) -> None:
        self._client, self._commands, self._lost, self._look = client, commands, lost, look
        self._owner = os.getpid()
        self._is_ending = False
        self._follower = follower if follower is not None else Follower()
        try:
            client.ask("join", **identity)
            client.trust()
        except NoAnswerError:
            client.close()
            raise
        self._sender = OwnThread(self._send, "gradtui-rank-sender")
        self._receiver = OwnThread(self._receive, "gradtui-rank-receiver")
        os.register_at_fork(after_in_child=client.forget)

    def start(self) -> None:
        """Begin to send and to receive."""
        self._sender.start()
        self._receiver.start()

    def take(self, events: Sequence[Event]) -> None:
        """Take events that the viewer of this process has applied. Never blocks."""
        self._follower.take(events)

    def finish(self) -> None:
        """Send what is left, and end the connection."""
        if os.getpid() != self._owner:
            return
        self._is_ending = True
        self._follower.finish()
        if self._sender.is_alive():
            self._sender.join(_END_S)
        self._client.close()

    def _send(self) -> None:
        try:
            for lines in self._follower.lines():
                self._client.send_lines(lines)
        except (NoAnswerError, OSError) as error:
            self._end(f"{error}")

    def _receive(self) -> None:
        try:
            for line in self._client.lines():
                with contextlib.suppress(BadEntry):
                    message = from_json(line)
                    if isinstance(message, dict) and message:
                        self._obey(message)
            self._end("the connection to the viewer of the job is lost")
        except (NoAnswerError, OSError, ValueError) as error:
            self._end(f"{error}")

    def _obey(self, message: Mapping[str, Any]) -> None:
        request = state_requested(message)
        if request is not None:
            self._look(lambda state: self._follower.take([_state_taken(state, request)]))
            return
        command = command_in(message)
        self._commands.reopen()
        self._commands.submit(lambda _, made=command: made, command.origin, command.id)  # type: ignore[misc]

    def _end(self, why: str) -> None:
        """Drop the events and commands that are queued, and close the connection. The run continues."""
        self._follower.leave()
        self._commands.close()
        self._client.close()
        if not self._is_ending:
            self._is_ending = True
            self._lost(why)


def _state_taken(state: RunState, request: int) -> RankStateTaken:
    try:
        text = to_line(snapshot(state))
    except Exception:  # noqa: BLE001 - a state that cannot be written must not end the connection
        text = ""
    return RankStateTaken(state.seconds, state.step, request, text)


class LateRankLink:
    """The link of a process that becomes a rank when it trains: before, its environment does not say which one it is.

    A process that trains nothing is no rank. The process group says which rank this is; where there is none, `identity` does.

    Args:
        identity: what `identity_of` returns, as far as it is known.
        connect: returns the link, with the identity that is known then and the events so far. None if there is no viewer.
    """

    def __init__(self, identity: Identity, connect: Callable[[Identity, Follower], RankLink | None]) -> None:
        self._identity, self._connect = identity, connect
        self._owner = os.getpid()
        self._follower = Follower()
        self._link: RankLink | None = None

    def take(self, events: Sequence[Event]) -> None:
        """Take events that the viewer of this process has applied. Connects with the first of training."""
        self._follower.take(events)
        if self._link is not None or self._follower.is_over:
            return
        group = next((each for each in events if isinstance(each, ProcessGroupFound) and each.ranks > 1), None)
        if group is not None:
            self._identity = {**self._identity, "rank": group.rank, "ranks": group.ranks}
        elif not any(isinstance(each, Progress) and each.micro_steps for each in events):
            return
        self._link = self._connect(self._identity, self._follower)
        if self._link is None:
            self._follower.leave()

    def finish(self) -> None:
        """Send what is left, and end the connection."""
        if self._link is not None and os.getpid() == self._owner:
            self._link.finish()
