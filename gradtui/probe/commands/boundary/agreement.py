"""Carry out a command on all ranks of a job at the same step, or on none of them. Training thread only.

A viewer proposes a command for a later step, and confirms it when all ranks have accepted. The decision is a value in the store
of the ranks that is written once (`torch_private/rendezvous.py`): a rank that hears of the confirmation writes `commit`, one
that comes to the step without it writes `cancel`. What is written first decides for all ranks, and what a rank carries out
depends on nothing else, however late messages and answers are:

- A rank accepts only after the store has answered it, since one that cannot read a decision must not take part in it.
- A rank that has accepted and comes to the step without knowing the decision waits there for the store. What the viewer relays
  ends the wait as well: that another rank has read `commit`, or that the command is cancelled, which it says only if no rank
  can have read `commit`.
- A rank that has waited in vain (`PIECES`) trains on, says so, and accepts nothing any more.

No collective operation runs, and the store is asked only while a proposal is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from gradtui.dataclass import dataclass
from gradtui.probe.torch_private.rendezvous import PIECES, NoStoreError, job_store, wait_a_piece
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command, Resume
from gradtui.run.text import refusals

_COMMIT, _CANCEL = "commit", "cancel"
_MAX_KNOWN = 1_000
"""Ids of proposals that are remembered, so that none is answered twice."""


class WrittenOnce(Protocol):
    """What an agreement needs of a `JobStore`."""

    given_up: str | None

    def write_once(self, name: str, value: str) -> Future[str]:
        """See `JobStore`."""


@dataclass
class _Open:
    """A proposal that this rank has accepted, or will accept when the store has answered."""

    proposal: Proposal
    asked: Future[str] | None
    """The call of the store that has not answered yet."""
    is_accepted: bool = False
    wanted: str = _CANCEL
    """What this rank writes if no rank has written yet."""
    decision: str | None = None
    waits: int = 0
    """How often training has waited for the decision."""


class Agreement:
    """The proposals of one rank.

    Args:
        objection: returns why this rank would refuse a command, in words; None if it would not, as far as is known now.
        answer: receives the id of each proposal, why this rank refuses it, and None if it accepts it.
        store: where the decisions are.
        wait_for: waits for an answer of the store, for a piece of time.
    """

    def __init__(
        self,
        objection: Callable[[Command], str | None],
        answer: Callable[[int, str | None], None],
        store: WrittenOnce = job_store,
        wait_for: Callable[[Future[Any]], None] = wait_a_piece,
    ) -> None:
        self._objection, self._answer, self._store, self._wait_for = objection, answer, store, wait_for
        self.open: dict[int, _Open] = {}
        """By id."""
        self._awaited: _Open | None = None
        self._known: dict[int, None] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether training must wait: what comes next at this boundary is not decided yet, as far as this rank knows."""
        return self._awaited is not None

    def take(self, command: Proposal | Confirmation | Cancellation, step: int, *, is_held: bool) -> None:
        """Take what the viewer says at the boundary after `step` steps, at which the run is held or not."""
        if isinstance(command, Proposal):
            self._propose(command, step, is_held=is_held)
            return
        known = self.open.get(command.proposal)
        if known is None:
            return
        if isinstance(command, Cancellation):
            self._drop(known)
        elif command.is_decided:
            known.decision = _COMMIT
        elif known.asked is None:
            known.wanted = _COMMIT
            self._ask(known, known.wanted)
            self._wait_for_it(known)

    def _propose(self, proposal: Proposal, step: int, *, is_held: bool) -> None:
        if proposal.id in self._known:
            return
        self._known[proposal.id] = None
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self.open[proposal.id] = made = _Open(proposal, None)
        if not _is_over(proposal, step, is_held=is_held):
            # No rank has anything to write yet: this only reads.
            self._ask(made, "")
            self._wait_for_it(made)
        self._vote(made, step, is_held=is_held)

    def _vote(self, known: _Open, step: int, *, is_held: bool) -> None:
        """Answer a proposal, if the store has answered. A rank that has come to the step meanwhile refuses it."""
        proposal, asked = known.proposal, known.asked
        if _is_over(proposal, step, is_held=is_held):
            late = refusals.step_is_over(proposal.at_step, step)
            self._refuse(known, late if asked is None else refusals.STORE_IS_SLOW)
            return
        if asked is None or not asked.done():
            return
        known.asked = None
        try:
            known.decision = asked.result() or None
        except NoStoreError as error:
            self._refuse(known, str(error))
            return
        why = refusals.NOT_CONFIRMED if known.decision == _CANCEL else self._objection(proposal.command)
        if why is None:
            known.is_accepted = True
            self._answer(proposal.id, None)
        else:
            self._refuse(known, why)

    def _refuse(self, known: _Open, why: str) -> None:
        self._drop(known)
        self._answer(known.proposal.id, why)

    def _drop(self, known: _Open) -> None:
        if known.asked is not None:
            known.asked.cancel()
        del self.open[known.proposal.id]

    def _ask(self, known: _Open, wanted: str) -> None:
        known.asked = self._store.write_once(str(known.proposal.id), wanted)

    def _wait_for_it(self, known: _Open) -> None:
        """Wait a piece of time for the store, which usually answers within a millisecond."""
        if known.asked is not None and not known.asked.done():
            self._wait_for(known.asked)

    def due(self, step: int, *, is_held: bool) -> Iterator[tuple[Command, str | None]]:
        """Yield the commands that must be carried out now, in the order in which all ranks do so: by step and id.

        With each comes None, or why this rank cannot know whether the others carry it out. Of those that no rank carries out,
        the viewer hears that this rank refuses them after all: it may propose them again for a later step. While the run is
        held, undecided ones wait for their decision, and one that resumes it does not wait for its step. Otherwise an undecided
        one ends the iteration: see `is_awaited`.
        """
        self._awaited = None
        for known in sorted(self.open.values(), key=lambda each: (each.proposal.at_step, each.proposal.id)):
            if not known.is_accepted:
                self._vote(known, step, is_held=is_held)
                continue
            self._look(known)
            command = known.proposal.command
            resumes = is_held and isinstance(command, Resume) and known.decision == _COMMIT
            is_ahead = known.proposal.at_step > step and not resumes
            if is_ahead:
                continue
            if is_held and known.decision is None:
                if known.asked is None and known.wanted == _COMMIT:
                    self._ask(known, known.wanted)
                continue
            if known.decision == _COMMIT:
                self._drop(known)
                yield command, None
            elif known.decision == _CANCEL:
                self._refuse(known, refusals.NOT_CONFIRMED)
            elif self._store.given_up is not None or known.waits >= PIECES:
                self._store.given_up = self._store.given_up or refusals.missed_a_decision(step)
                self._drop(known)
                yield command, self._store.given_up
            else:
                self._awaited = known
                return

    def wait(self) -> None:
        """Wait for the decision that is awaited, for a piece of time."""
        known = self._awaited
        if known is None:
            return
        known.waits += 1
        if known.asked is None:
            self._ask(known, known.wanted)
        if known.asked is not None:
            self._wait_for(known.asked)

    @staticmethod
    def _look(known: _Open) -> None:
        """Take the answer of the store, if it is there. A call that has failed is made again when the decision is awaited."""
        asked = known.asked
        if asked is None or not asked.done():
            return
        known.asked = None
        if asked.exception() is None:
            known.decision = known.decision or asked.result()


def _is_over(proposal: Proposal, step: int, *, is_held: bool) -> bool:
    return step > proposal.at_step or (step == proposal.at_step and not is_held)
