"""The viewer's side of the connections to the ranks of a job: their events into one queue, its commands to the ranks."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from gradtui.job.messages import message_of
from gradtui.job.processes import is_running
from gradtui.job.proposals import Proposals, Send
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import Event, RankEvent, RankJoined, RankLeft, RanksHeard, RunEnded
from gradtui.protocol.json_values import NotReadableError
from gradtui.serving import Connection, Conversation
from gradtui.state.job import SILENT_S

_TICK_S = 0.05
_HEARD_S = 1.0
"""Seconds between two reports on when the ranks were heard from."""
_DYING_S = 0.5
"""Seconds that a process takes to end, once its connections are closed."""
_LIMITS = {"rank": 1 << 20, "ranks": 1 << 20, "local_rank": 1 << 20, "generation": 1 << 20, "pid": 1 << 31}


@dataclass
class _Rank:
    joined: RankJoined
    connection: Connection
    heard_at: float
    step: int = 0
    has_ended: bool = False


class RankHub:
    """Connects the ranks of a job with its viewer. Each rank has the thread of its connection.

    Args:
        emit: receives the events of all ranks.
        clock: returns the seconds of the viewer's run.
    """

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._emit, self._clock = emit, clock
        self._ranks: dict[int, _Rank] = {}
        self._generation = 0
        self._proposals = Proposals()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gradtui-hub", daemon=True)

    def start(self) -> None:
        """Begin to watch over proposals and silent ranks."""
        self._thread.start()

    def close(self) -> None:
        """Let all ranks go."""
        self._stop.set()
        with self._lock:
            for rank in self._ranks.values():
                rank.connection.close()

    def send(self, command: Command) -> None:
        """Send a command of the viewer to the ranks. Any thread."""
        with self._lock:
            self._deliver(self._proposals.submit(command, self._clock()))

    def join(self, request: Mapping[str, Any]) -> Conversation:
        """Return the conversation with a rank that asks to join. Raises `BadEntry`."""
        joined = _joined(request, self._clock())
        if joined.generation < self._generation:
            raise BadEntry(f"the ranks were restarted: generation {joined.generation} is over")
        return Conversation({"rank": joined.rank}, lambda connection: self._converse(joined, connection))

    def _converse(self, joined: RankJoined, connection: Connection) -> None:
        """Receive the events of a rank until it leaves. Runs on the thread of its connection."""
        me = self._enter(joined, connection)
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

    def _enter(self, joined: RankJoined, connection: Connection) -> _Rank:
        me = _Rank(joined, connection, self._clock())
        with self._lock:
            if joined.generation > self._generation:
                self._generation = joined.generation
                self._deliver(self._proposals.restarted(self._clock()))
            former = self._ranks.get(joined.rank)
            self._ranks[joined.rank] = me
            self._proposals.joined(joined.rank, joined.ranks)
            self._emit(joined)
        if former is not None:
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
            # Proposals learn of an answer in the order in which viewers do.
            self._emit(RankEvent(now, event.step, me.joined.rank, me.joined.generation, event))
            self._deliver(self._proposals.take(me.joined.rank, event, now))

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
            self._emit(RankLeft(at, me.step, joined.rank, joined.generation, why, is_over))
            self._deliver(self._proposals.left(joined.rank, self._clock(), why or "its run has ended"))

    def _run(self) -> None:
        heard, was_silent = self._clock(), False
        while not self._stop.wait(_TICK_S):
            now = self._clock()
            with self._lock:
                self._deliver(self._proposals.tick(now))
                is_silent = any(now - each.heard_at >= SILENT_S for each in self._ranks.values())
                if self._ranks and (now - heard >= _HEARD_S or (is_silent and not was_silent)):
                    heard, was_silent = now, is_silent
                    silent = tuple((rank, max(0.0, now - each.heard_at)) for rank, each in sorted(self._ranks.items()))
                    step = max(each.step for each in self._ranks.values())
                    self._emit(RanksHeard(now, step, silent))

    def _deliver(self, sends: list[Send]) -> None:
        """Send to the ranks what the proposals say, and emit what viewers must see. Call it with the lock."""
        events, self._proposals.events = self._proposals.events, []
        for event in events:
            self._emit(event)
        for rank, command in sends:
            known = self._ranks.get(rank)
            if known is not None:
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
    """Return why a rank has left before the end of its run: what is known, and no more."""
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
