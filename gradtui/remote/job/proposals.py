"""Decide what all ranks of a job carry out, and at which step. Pure: it receives events and the time, and returns commands.

A command for all ranks is proposed for a step far enough ahead. When every rank has accepted, it is confirmed. It is cancelled
if a rank refuses, does not answer in time, or is gone. If a rank had passed the step, the command is proposed again for a later
one. One proposal is open at a time, so that all ranks carry out commands in the same order.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol import commands
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command
from gradtui.protocol.events import (
    CommandApplied,
    CommandProposed,
    CommandRejected,
    Event,
    PauseChanged,
    ProcessGroupFound,
    Progress,
    ProposalAnswered,
    ProposalClosed,
    RankOutcome,
    RunEnded,
)

LEAD_S = 1.5
"""Seconds of training between a proposal and its step: a rank's answer and the confirmation take some tenths of a second."""
MIN_LEAD = 2
"""The same in steps: a rank answers at its next boundary, and needs the confirmation at a later one."""
TRIES = 4
"""How often a command is proposed while ranks have passed the step. The lead grows each time."""
ANSWER_S = 10.0
"""Seconds that a rank has to answer, besides the time until the step has come, and of three more."""
OUTCOME_S = 90.0
"""Seconds after a confirmed step has come in which a rank says what it has done. It may wait a minute for the store."""
MAX_TICK_S = 0.5
"""Seconds between two ticks that count: more have passed if this process was stopped, and the ranks may have answered."""

_ON_ALL = (
    commands.Intervention,
    commands.KeepState,
    commands.ForgetState,
    commands.RenameState,
    commands.SaveState,
    commands.Pause,
    commands.Resume,
    commands.RunSteps,
    commands.RunTo,
    commands.StopTraining,
    commands.SetBreakpoint,
    commands.ClearBreakpoint,
)
_HOLDS = (commands.Pause, commands.RunSteps, commands.RunTo, commands.SetBreakpoint)
_OF_ONE_RANK = {
    "loss": "each rank has a loss of its own, so only some ranks would be held",
    "norm": "each rank measures its own gradients, so only some ranks would be held",
    "spike": "each rank has a loss and gradients of its own, so only some ranks would be held",
}

Send = tuple[int, Command]
"""A rank, and what is sent to it."""


@dataclass
class _Rank:
    step: int = 0
    rate: float = 0.0
    """Steps per second."""
    at: float | None = None
    """The time of its last `Progress`, on its own clock: several may arrive at once."""
    is_held: bool = False


@dataclass
class _Open:
    id: int
    command: Command
    at_step: int
    base: int
    """The newest step of any rank when it was proposed, as far as the viewer knew."""
    tries: int
    ranks: tuple[int, ...]
    """To whom it was proposed."""
    waited: float = 0.0
    """Seconds since it was proposed, or confirmed."""
    accepted: set[int] = field(default_factory=set)
    done: dict[int, str] = field(default_factory=dict)
    """By rank: empty if it has made the change, else why not. Some may be unable to do so after all."""
    is_confirmed: bool = False

    @property
    def is_uneven(self) -> bool:
        """Whether some ranks have carried it out, and others could not."""
        return len(set(map(bool, self.done.values()))) > 1

    def outcome(self, rank: int) -> RankOutcome:
        """Return what a rank has done."""
        if rank in self.done:
            return RankOutcome(rank, "refused" if self.done[rank] else "made", self.done[rank])
        return RankOutcome(rank, "accepted" if rank in self.accepted and not self.is_confirmed else "silent")


class Proposals:
    """The proposals of a job.

    `events` collects what viewers must see; the caller takes it from there.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.shown: int | None = None
        """The rank that answers what one rank can answer; None for the lowest one."""
        self._ranks: dict[int, _Rank] = {}
        self._size = 0
        self._waiting: deque[tuple[Command, int, int]] = deque()
        """Commands with the number of times that they were proposed, and the least lead in steps."""
        self._open: _Open | None = None
        self._ticked = 0.0
        """The time of the last tick."""
        # What an earlier viewer of the same ranks has proposed stays decided.
        self._ids = itertools.count(secrets.randbits(48))
        self._ended: set[int] = set()
        self._last = 0
        """The newest step of any rank."""
        self._is_uneven = False
        """Some ranks have carried out a command that others could not, so their latest changes differ."""

    # What the ranks say

    def joined(self, rank: int, size: int) -> None:
        """A rank has connected. `size` is the number of ranks, as it knows."""
        self._ranks[rank] = _Rank()
        self._size = max(self._size, size)
        self._ended.discard(rank)

    def restarted(self, now: float) -> list[Send]:
        """The launcher restarts the ranks: nothing that was proposed to the former ones holds."""
        # Nobody is told: the former ranks are gone, or end.
        self._close(now, "the ranks were started again")
        sends: list[Send] = []
        self._ranks, self._size, self._ended, self._is_uneven = {}, 0, set(), False
        return sends

    def left(self, rank: int, now: float, why: str) -> list[Send]:
        """The connection to a rank has ended."""
        self._ranks.pop(rank, None)
        if self._open is not None and not self._open.is_confirmed:
            return self._close(now, f"rank {rank}: {why}") + self.tick(now)
        return self._finish(now)

    def take(self, rank: int, event: Event, now: float) -> list[Send]:
        """Take an event of a rank."""
        known = self._ranks.get(rank)
        if known is None:
            return []
        if isinstance(event, Progress):
            if event.steps and known.at is not None and event.at > known.at:
                known.rate = event.steps / (event.at - known.at)
            known.step, known.at = max(known.step, event.step), event.at
            return []
        if isinstance(event, ProcessGroupFound):
            # It may have ranks on other machines that this viewer does not see.
            self._size = max(self._size, event.ranks)
            return []
        if isinstance(event, PauseChanged):
            known.is_held, known.step = event.paused, max(known.step, event.step)
            return self.tick(now)
        if isinstance(event, RunEnded):
            self._ended.add(rank)
            return self.left(rank, now, "its run has ended")
        if isinstance(event, ProposalAnswered):
            return self._answered(rank, event, now)
        if isinstance(event, (CommandApplied, CommandRejected)):
            known.step = max(known.step, event.step)
            return self._done(rank, event, now)
        return []

    # What the user wants

    def submit(self, command: Command, now: float) -> list[Send]:
        """Send a command: to all ranks at one step, or to those that can carry it out by themselves."""
        if not isinstance(command, _ON_ALL):
            if isinstance(command, commands.PauseAtBadStep):
                self._reject(
                    command, now, "ranks may see it at different steps, and those that are not held would wait"
                )
                return []
            shown = self.shown if self.shown in self._ranks else min(self._ranks, default=None)
            to = (
                sorted(self._ranks)
                if isinstance(command, commands.VerifyFreeze)
                else [shown]
                if shown is not None
                else []
            )
            if not to:
                self._reject(command, now, "no rank is connected")
            return [(rank, command) for rank in to]
        if isinstance(command, commands.SetBreakpoint) and command.metric in _OF_ONE_RANK:
            self._reject(command, now, _OF_ONE_RANK[command.metric])
            return []
        if isinstance(command, commands.Undo) and self._is_uneven:
            self._reject(
                command, now, "not all ranks have carried out an earlier change, so each would undo another one"
            )
            return []
        if isinstance(command, commands.Resume) and self._held_step is not None:
            # What is proposed for a later step must not keep the ranks from being released.
            return list(self._to_all(command))
        self._waiting.append((command, 0, MIN_LEAD))
        return self.tick(now)

    def tick(self, now: float) -> list[Send]:
        """Do what is due at this time."""
        passed, self._ticked = min(now - self._ticked, MAX_TICK_S), now
        sends = self._overdue(now, passed)
        if self._open is None and self._waiting:
            sends += self._propose(*self._waiting.popleft(), now)
        return sends

    # Proposals

    def _propose(self, command: Command, tries: int, lead: int, now: float) -> list[Send]:
        missing = self._size - len(self._ranks)
        if not self._ranks:
            self._reject(command, now, "no rank is connected")
            return []
        if missing > 0:
            self._reject(
                command,
                now,
                f"{missing} of {self._size} ranks are not connected",
            )
            return []
        base = at_step = self._newest
        if self._held_step is None:
            rate = max(each.rate for each in self._ranks.values())
            at_step = base + max(lead, math.ceil(rate * LEAD_S))
        self._open = made = _Open(next(self._ids), command, at_step, base, tries + 1, tuple(sorted(self._ranks)))
        self.events.append(CommandProposed(now, base, made.id, command, at_step))
        return [(rank, Proposal(made.id, command, at_step, origin=command.origin)) for rank in made.ranks]

    def _answered(self, rank: int, answer: ProposalAnswered, now: float) -> list[Send]:
        proposal = self._open
        self._ranks[rank].step = max(self._ranks[rank].step, answer.step)
        if proposal is None or proposal.id != answer.proposal:
            return []
        if not answer.accepts:
            # Before the confirmation or after it: then it came too late to some rank, and none has carried it out.
            is_late = answer.step >= proposal.at_step and not self._ranks[rank].is_held
            if is_late and proposal.tries < TRIES:
                sends = list(self._to_all(Cancellation(0, proposal.id)))
                self._open = None
                lead = 2 * max(answer.step - proposal.base, proposal.at_step - proposal.base)
                self._waiting.appendleft((proposal.command, proposal.tries, lead))
                return sends + self.tick(now)
            proposal.done[rank] = answer.reason
            return self._close(now, f"rank {rank}: {answer.reason}") + self.tick(now)
        proposal.accepted.add(rank)
        if not proposal.is_confirmed and proposal.accepted >= self._ranks.keys():
            proposal.is_confirmed, proposal.waited = True, 0.0
            return list(self._to_all(Confirmation(0, proposal.id)))
        return []

    def _done(self, rank: int, event: CommandApplied | CommandRejected, now: float) -> list[Send]:
        proposal = self._open
        if proposal is None or proposal.command.id != event.command.id or not proposal.is_confirmed:
            return []
        sends: list[Send] = []
        if isinstance(event, CommandRejected):
            proposal.done[rank] = event.reason
        else:
            if "" not in proposal.done.values():
                # A rank that cannot read the decision learns of it so.
                sends += self._to_all(Confirmation(0, proposal.id, True))
            proposal.done[rank] = ""
        if proposal.is_uneven:
            self._is_uneven = True
            sends += self._released(proposal.command)
        return sends + self._finish(now)

    def _released(self, command: Command) -> list[Send]:
        """Let the ranks go that are held, or will be, while others train on and wait for them."""
        sends: list[Send] = []
        if isinstance(command, commands.SetBreakpoint):
            sends += self._to_all(commands.ClearBreakpoint(0, command.id))
        if isinstance(command, _HOLDS):
            sends += self._to_all(commands.Resume(0))
        return sends

    def _finish(self, now: float) -> list[Send]:
        """End a confirmed proposal when all ranks have said what they have done."""
        proposal = self._open
        if proposal is not None and proposal.is_confirmed and proposal.done.keys() >= self._ranks.keys():
            self._conclude(now)
        return self.tick(now)

    def _overdue(self, now: float, passed: float) -> list[Send]:
        proposal = self._open
        if proposal is None:
            return []
        proposal.waited += passed
        patience = OUTCOME_S if proposal.is_confirmed else ANSWER_S
        # A rank whose store is slow answers when the step has come.
        ahead = proposal.at_step - proposal.base
        if proposal.waited <= patience + (ahead + 3) * self._step_time:
            return []
        if proposal.is_confirmed:
            self._conclude(now)
            return []
        silent = sorted(self._ranks.keys() - proposal.accepted)
        return self._close(now, f"rank {silent[0]} did not answer in time" if silent else "no rank is connected")

    def _close(self, now: float, reason: str) -> list[Send]:
        """End the open proposal: cancel it on all ranks for a reason, unless a rank has carried it out."""
        proposal = self._open
        if proposal is None:
            return []
        if "" in proposal.done.values():
            self._conclude(now)
            return []
        self._conclude(now, reason)
        sends: list[Send] = list(self._to_all(Cancellation(0, proposal.id)))
        if isinstance(proposal.command, commands.Resume):
            # Ranks that are held may be what the others wait for. To train on is no change.
            return sends + list(self._to_all(proposal.command))
        self._reject(proposal.command, now, reason)
        return sends

    def _conclude(self, now: float, reason: str = "") -> None:
        """End the open proposal, and say what each rank has done. Without a reason the ranks have decided to carry it out."""
        proposal, self._open = self._open, None
        if proposal is not None:
            outcomes = tuple(proposal.outcome(rank) for rank in proposal.ranks)
            self.events.append(ProposalClosed(now, self._newest, proposal.command.id, not reason, reason, outcomes))

    def _to_all(self, command: Command) -> Iterator[Send]:
        for rank in sorted(self._ranks):
            yield rank, command

    def _reject(self, command: Command, now: float, reason: str) -> None:
        self.events.append(CommandRejected(now, self._newest, command, reason))

    @property
    def is_holding(self) -> bool:
        """Whether any rank is held."""
        return any(each.is_held for each in self._ranks.values())

    @property
    def _held_step(self) -> int | None:
        """The step at which all ranks are held; None if they are not."""
        steps = {each.step if each.is_held else None for each in self._ranks.values()}
        return steps.pop() if len(steps) == 1 else None

    @property
    def _newest(self) -> int:
        self._last = max((each.step for each in self._ranks.values()), default=self._last)
        return self._last

    @property
    def _step_time(self) -> float:
        """The seconds of a step of the slowest rank, as far as known."""
        return max((1 / each.rate for each in self._ranks.values() if each.rate > 0), default=0.0)
