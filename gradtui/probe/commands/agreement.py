"""Carry out a command on all ranks of a job at the same step, or on none of them. Training thread only.

A viewer proposes a command for a later step, and confirms it when all ranks have accepted. It does not matter whether a rank
learns of that in time: the decision is a value that is written once and that all ranks read (`torch_private/rendezvous.py`). A
confirmation writes `commit`, a cancellation `cancel`. A rank that comes to the step without a decision writes `cancel`. What is
written first decides for all ranks.

No collective operation runs, and the store is asked only while a proposal is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from gradtui.probe.torch_private.rendezvous import NoStoreError, write_once
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command, Resume
from gradtui.text import refusals

_COMMIT, _CANCEL = "commit", "cancel"
_MOST_KNOWN = 1_000
"""Ids of proposals that are remembered, so that none is answered twice."""


@dataclass
class _Accepted:
    proposal: Proposal
    decision: str | None = None
    why_not: str = refusals.NOT_CONFIRMED


class Agreement:
    """The proposals of one rank.

    Args:
        objection: returns why this rank would refuse a command, in words; None if it would not, as far as is known now.
        answer: receives the id of each proposal, why this rank refuses it, and None if it accepts it.
        decide: writes a value once for all ranks: see `write_once`.
    """

    def __init__(
        self,
        objection: Callable[[Command], str | None],
        answer: Callable[[int, str | None], None],
        decide: Callable[[str, str], str] = write_once,
    ) -> None:
        self._objection, self._answer, self._decide = objection, answer, decide
        self.open: dict[int, _Accepted] = {}
        """The accepted proposals whose step has not come, by id."""
        self._known: dict[int, None] = {}

    def take(self, command: Proposal | Confirmation | Cancellation, step: int, *, is_held: bool) -> None:
        """Take what the viewer says at the boundary after `step` steps, at which the run is held or not."""
        if isinstance(command, Proposal):
            self._propose(command, step, is_held=is_held)
            return
        accepted = self.open.get(command.proposal)
        if accepted is None:
            return
        if isinstance(command, Cancellation):
            accepted.why_not = command.reason or accepted.why_not
        # If the store does not answer, the rank asks again when the step has come.
        with suppress(NoStoreError):
            self._settle(accepted, _COMMIT if isinstance(command, Confirmation) else _CANCEL)

    def _propose(self, proposal: Proposal, step: int, *, is_held: bool) -> None:
        if proposal.id in self._known:
            return
        self._known[proposal.id] = None
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        is_over = step > proposal.at_step or (step == proposal.at_step and not is_held)
        why = refusals.step_is_over(proposal.at_step, step) if is_over else self._objection(proposal.command)
        if why is None:
            self.open[proposal.id] = _Accepted(proposal)
        self._answer(proposal.id, why)

    def _settle(self, accepted: _Accepted, wanted: str) -> None:
        if accepted.decision is None:
            accepted.decision = self._decide(str(accepted.proposal.id), wanted)

    def due(self, step: int, *, is_held: bool) -> Iterator[tuple[Command, str | None]]:
        """Yield the commands that must be carried out now, in the order in which all ranks do so: by step and id.

        With each comes None, or why this rank cannot know whether the others carry it out. Of those that no rank carries out,
        the viewer hears that this rank refuses them after all: it may propose them again for a later step. While the run is
        held, undecided ones wait for their decision, and one that resumes it does not wait for its step.
        """
        for id_, accepted in sorted(self.open.items(), key=lambda item: (item[1].proposal.at_step, item[0])):
            command = accepted.proposal.command
            resumes = is_held and isinstance(command, Resume) and accepted.decision == _COMMIT
            is_ahead = accepted.proposal.at_step > step and not resumes
            if is_ahead or (is_held and accepted.decision is None):
                continue
            del self.open[id_]
            try:
                self._settle(accepted, _CANCEL)
            except NoStoreError as error:
                yield command, str(error)
                continue
            if accepted.decision == _COMMIT:
                yield command, None
            else:
                self._answer(id_, accepted.why_not)
