"""The viewer's side of the connections to the ranks of a job: their events into one queue, its commands to the ranks.

The process of the viewer may be a rank itself, which then needs no connection: its events are those of the run.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command, Resume, ShowRank
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import (
    CommandRejected,
    Event,
    ProcessGroupFound,
    RankEvent,
    RankJoined,
    RankLeft,
    RanksHeard,
    RankStateTaken,
    RunEnded,
)
from gradtui.protocol.json_values import NotReadableError
from gradtui.remote.job.link import identity_of
from gradtui.remote.job.messages import message_of, state_request
from gradtui.remote.job.processes import is_running
from gradtui.remote.job.proposals import Proposals, Send
from gradtui.remote.job.state_requests import StateRequests
from gradtui.remote.serving.messages import Connection
from gradtui.remote.serving.server import Conversation
from gradtui.run.state.parts.job import SILENT_S
from gradtui.system.own_thread import OwnThread

_TICK_S = 0.05
_HEARD_S = 1.0
"""Seconds between two reports on when the ranks were heard from."""
_OWN_S = 30.0
"""Seconds that the other ranks wait for the viewer's own process to say which rank it is."""
RELEASE_ID = (1 << 24) - 1
"""The id of the command that releases held ranks when the viewer is gone: before those that the viewer makes."""
_SHOWS_ITSELF = "the process with the dashboard is a rank itself, and its own state is shown"
_DYING_S = 0.5
"""Seconds that a process takes to end, once its connections are closed."""
_LIMITS = {"rank": 1 << 20, "ranks": 1 << 20, "local_rank": 1 << 20, "generation": 1 << 20, "pid": 1 << 31}


@dataclass
class _Rank:
    joined: RankJoined
    connection: Connection | None
    """None for the process of the viewer."""
    heard_at: float
    step: int = 0
    has_ended: bool = False


class RankHub:
    """Connects the ranks of a job with its viewer. Each rank has the thread of its connection.

    Args:
        emit: receives the events of all ranks.
        clock: returns the seconds of the viewer's run.
        begins: called before the events of the first connected rank, and of the first one after a restart.
    """

    def __init__(
        self, emit: Callable[[Event], None], clock: Callable[[], float], begins: Callable[[], None] = lambda: None
    ) -> None:
        self._emit, self._clock, self._begins = emit, clock, begins
        self._own_rank: int | None = None
        self._deliver_to_own: Callable[[Command], None] | None = None
        """Takes commands for the viewer's own process, if that is a rank."""
        self._ranks: dict[int, _Rank] = {}
        self._generation = 0
        """The newest that a rank has said."""
        self._restarts, self._has_ranks = 0, False
        """How many generations before it had a rank."""
        self._proposals = Proposals()
        self._states = StateRequests()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._stop = threading.Event()
        self._thread = OwnThread(self._run, "gradtui-hub")

    def start(self) -> None:
        """Begin to watch over proposals and silent ranks."""
        self._thread.start()

    def close(self) -> None:
        """Let all ranks go."""
        self._stop.set()
        with self._lock:
            for rank in self._ranks.values():
                if rank.connection is not None:
                    rank.connection.close()

    @property
    def own_rank(self) -> int | None:
        """The rank of the viewer's own process; None while it is not known to be one."""
        return self._own_rank

    def include_own(self, deliver: Callable[[Command], None]) -> None:
        """The process of the viewer is a rank itself: which one, its process group says. `deliver` takes its commands."""
        self._deliver_to_own = deliver

    def take_own(self, events: Sequence[Event]) -> None:
        """Take events that the viewer has applied: those of its own process count as those of a rank."""
        with self._lock:
            for event in events:
                if self._own_rank is not None:
                    self._deliver(self._proposals.take(self._own_rank, event, self._clock()))
                elif isinstance(event, ProcessGroupFound) and event.ranks > 1:
                    self._enter_own(event)

    def _enter_own(self, group: ProcessGroupFound) -> None:
        who = {**identity_of(), "rank": group.rank, "ranks": group.ranks, "generation": self._restarts}
        now = self._clock()
        joined = replace(_joined(who, now), is_viewers=True)
        self._own_rank, self._has_ranks = group.rank, True
        self._ranks[group.rank] = _Rank(joined, None, now)
        self._proposals.joined(group.rank, group.ranks)
        self._emit(joined)
        self._changed.notify_all()

    def wait_for_ranks(self, seconds: float) -> None:
        """Wait until no connected rank trains, or until the time has passed."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(each.connection is None or each.has_ended for each in self._ranks.values()), seconds
            )

    def release(self) -> None:
        """Let held ranks train on: the viewer is gone. Any thread."""
        with self._lock:
            if self._proposals.is_holding:
                self._deliver(self._proposals.submit(Resume(RELEASE_ID), self._clock()))

    def send(self, command: Command) -> None:
        """Send a command of the viewer to the ranks. Any thread."""
        with self._lock:
            if isinstance(command, ShowRank):
                self._ask_state(command)
            else:
                self._deliver(self._proposals.submit(command, self._clock()))

    def _ask_state(self, command: ShowRank) -> None:
        if self._deliver_to_own is not None:
            self._say([CommandRejected(self._clock(), 0, command, _SHOWS_ITSELF)])
            return
        rank = self._ranks.get(command.rank)
        self._say(self._states.ask(command, rank is not None, self._clock()))
        if rank is not None and rank.connection is not None:
            # A rank that is gone is found by the thread that reads from it, one that does not read by the time it takes.
            with contextlib.suppress(OSError):
                rank.connection.send(state_request(command))

    def _say(self, refused: list[CommandRejected]) -> None:
        step = max((each.step for each in self._ranks.values()), default=0)
        for each in refused:
            self._emit(replace(each, step=step))

    def join(self, request: Mapping[str, Any]) -> Conversation:
        """Return the conversation with a rank that asks to join. Raises `BadEntry`."""
        joined = _joined(request, self._clock())
        if joined.generation < self._generation:
            raise BadEntry(f"the ranks were restarted: generation {joined.generation} is over")
        if self._deliver_to_own is not None and joined.generation > self._generation:
            raise BadEntry("the process of the viewer is a rank, and was not restarted")
        return Conversation({"rank": joined.rank}, lambda connection: self._converse(joined, connection))

    def _converse(self, joined: RankJoined, connection: Connection) -> None:
        """Receive the events of a rank until it leaves. Runs on the thread of its connection."""
        if not self._knows_own(joined.rank):
            return
        me = self._enter(joined, connection)
        if me is None:
            return
        reader, reason = EventReader({}), ""
        try:
            while (line := connection.receive_line()) is not None:
                self._receive(me, reader, line)
        except NotReadableError as error:
            reason = f"it sent something else than {error}"
        except (OSError, ValueError) as error:
            reason = f"the connection is lost: {error}"
        finally:
            self._leave(me, reason)

    def _knows_own(self, rank: int) -> bool:
        """Wait until the viewer's own process is known as a rank, if it is one. Return whether `rank` is another one."""
        with self._changed:
            return self._deliver_to_own is None or (
                self._changed.wait_for(lambda: self._own_rank is not None, _OWN_S) and rank != self._own_rank
            )

    def _enter(self, joined: RankJoined, connection: Connection) -> _Rank | None:
        with self._lock:
            if joined.generation < self._generation:
                # A newer one has come since it asked to join.
                return None
            if joined.generation > self._generation or all(each.connection is None for each in self._ranks.values()):
                self._begins()
            if joined.generation > self._generation:
                self._generation, self._restarts = joined.generation, self._restarts + self._has_ranks
                self._deliver(self._proposals.restarted(self._clock()))
                self._say(self._states.restarted(self._clock()))
                self._proposals.shown = None
            self._has_ranks = True
            joined = replace(joined, generation=self._restarts)
            me = _Rank(joined, connection, self._clock())
            former = self._ranks.get(joined.rank)
            self._ranks[joined.rank] = me
            self._proposals.joined(joined.rank, joined.ranks)
            self._emit(joined)
        if former is not None and former.connection is not None:
            former.connection.close()
        return me

    def _receive(self, me: _Rank, reader: EventReader, line: bytes) -> None:
        event = reader.read(line)
        now = me.heard_at = self._clock()
        if event is None:
            return
        me.step = max(me.step, event.step)
        me.has_ended |= isinstance(event, RunEnded)
        with self._lock:
            if self._ranks.get(me.joined.rank) is not me:
                return
            if isinstance(event, RankStateTaken):
                if not self._states.answered(me.joined.rank, event):
                    return
                self._proposals.shown = me.joined.rank
            # Proposals learn of an answer in the order in which viewers do.
            self._emit(RankEvent(now, event.step, me.joined.rank, me.joined.generation, event))
            self._deliver(self._proposals.take(me.joined.rank, event, now))
            if me.has_ended:
                self._changed.notify_all()

    def _leave(self, me: _Rank, reason: str) -> None:
        joined = me.joined
        at, is_over = self._clock(), None
        if not me.has_ended:
            is_over = process_is_over(joined.host, joined.pid)
        why = "" if me.has_ended else _why(reason, is_over)
        with self._lock:
            if self._ranks.get(joined.rank) is not me:
                return
            del self._ranks[joined.rank]
            self._changed.notify_all()
            self._emit(RankLeft(at, me.step, joined.rank, joined.generation, why, is_over))
            self._say(self._states.left(joined.rank, why or "its run has ended", self._clock()))
            self._deliver(self._proposals.left(joined.rank, self._clock(), why or "its run has ended"))

    def _run(self) -> None:
        heard, was_silent = self._clock(), False
        while not self._stop.wait(_TICK_S):
            now = self._clock()
            with self._lock:
                self._deliver(self._proposals.tick(now))
                self._say(self._states.tick(now))
                is_silent = any(self._silence(each, now) >= SILENT_S for each in self._ranks.values())
                if self._ranks and (now - heard >= _HEARD_S or (is_silent and not was_silent)):
                    heard, was_silent = now, is_silent
                    silent = tuple((rank, self._silence(each, now)) for rank, each in sorted(self._ranks.items()))
                    step = max(each.step for each in self._ranks.values())
                    self._emit(RanksHeard(now, step, silent))

    @staticmethod
    def _silence(rank: _Rank, now: float) -> float:
        """Return the seconds since the viewer has heard from a rank. Its own process is always there."""
        return max(0.0, now - rank.heard_at) if rank.connection is not None else 0.0

    def _deliver(self, sends: list[Send]) -> None:
        """Send to the ranks what the proposals say, and emit what viewers must see. Call it with the lock."""
        events, self._proposals.events = self._proposals.events, []
        for event in events:
            self._emit(event)
        for rank, command in sends:
            known = self._ranks.get(rank)
            if known is None:
                continue
            if known.connection is None:
                if self._deliver_to_own is not None:
                    self._deliver_to_own(command)
                continue
            # A rank that is gone is found by the thread that reads from it.
            with contextlib.suppress(OSError):
                known.connection.send(message_of(command))


def process_is_over(host: str, process: int) -> bool | None:
    """Return whether a process has ended, which closes its connections a moment before; None if it is of another machine."""
    if host != socket.gethostname():
        return None
    until = monotonic() + _DYING_S
    while is_running(process):
        if monotonic() > until:
            return False
        sleep(_TICK_S)
    return True


def _why(reason: str, is_over: bool | None) -> str:
    """Return why the connection to a rank ended before its run did. `is_over`: whether its process has ended."""
    if is_over:
        return "its process is gone"
    lost = reason or "the connection is lost"
    return f"{lost}; its process is alive, and may train on" if is_over is False else f"{lost}; it may train on"


def _joined(request: Mapping[str, Any], at: float) -> RankJoined:
    """Return what a rank says of itself. Raises `BadEntry`."""
    found: dict[str, int] = {}
    for name, limit in _LIMITS.items():
        value = request.get(name)
        if type(value) is not int or not 0 <= value <= limit:
            raise BadEntry(f"{name} is a whole number from 0 on, not {value!r}")
        found[name] = value
    if found["rank"] >= max(1, found["ranks"]):
        raise BadEntry(f"there is no rank {found['rank']} of {found['ranks']} ranks")
    host = request.get("host")
    if not isinstance(host, str) or len(host) > 255:
        raise BadEntry("host is the name of a host")
    return RankJoined(
        at, 0, found["rank"], found["ranks"], found["local_rank"], host, found["pid"], found["generation"]
    )
