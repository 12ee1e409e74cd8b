"""The rank that a job's viewer shows, and its requests for the state of another one. Pure: it receives events and the time.

The state that a rank sends is passed on only while it is asked for: a rank that was stopped may answer long after the viewer
has given up, and the user must not be taken to it then.
"""

from __future__ import annotations

from gradtui.protocol.commands import ShowRank
from gradtui.protocol.events import CommandRejected, RankStateTaken

ANSWER_S = 5.0
"""Seconds that a rank has to send its state. It does so on a thread of its own, whatever the training does."""


class StateRequests:
    """One request at a time: a new one replaces the one before."""

    def __init__(self) -> None:
        self.shown: int | None = None
        """The rank that the user has chosen; None for the lowest one."""
        self._asked: ShowRank | None = None
        self._since = 0.0

    def ask(self, command: ShowRank, connected: bool, now: float) -> list[CommandRejected]:
        """Ask for the state of a rank. If no refusal of this command is among the answers, the rank is to be asked."""
        answers = self._give_up("another rank was chosen", now)
        if not connected:
            return [*answers, CommandRejected(now, 0, command, f"rank {command.rank} is not connected")]
        self._asked, self._since = command, now
        return answers

    def answered(self, rank: int, event: RankStateTaken) -> bool:
        """Return whether the state that a rank has sent is the one that was asked for, which is shown then."""
        asked = self._asked
        if asked is None or (asked.rank, asked.id) != (rank, event.request):
            return False
        self.shown, self._asked = rank, None
        return True

    def left(self, rank: int, why: str, now: float) -> list[CommandRejected]:
        """The connection to a rank has ended."""
        return self._give_up(why, now) if self._asked is not None and self._asked.rank == rank else []

    def restarted(self, now: float) -> list[CommandRejected]:
        """The launcher restarts the ranks."""
        self.shown = None
        return self._give_up("the launcher has restarted the ranks", now)

    def tick(self, now: float) -> list[CommandRejected]:
        """Give up a request that is overdue."""
        if self._asked is None or now - self._since <= ANSWER_S:
            return []
        return self._give_up(f"it has not answered for {ANSWER_S:.0f} seconds", now)

    def _give_up(self, why: str, now: float) -> list[CommandRejected]:
        asked, self._asked = self._asked, None
        return [CommandRejected(now, 0, asked, why)] if asked is not None else []
