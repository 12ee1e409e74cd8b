"""What several ranks of a job agree on: a command that all of them carry out at the same step, or none of them.

A viewer proposes a command for a later step. Each rank answers at its next step boundary (`ProposalAnswered`). If all accept,
the viewer confirms; otherwise it cancels. These are commands of a viewer and no words of a schedule.
"""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command


@dataclass(frozen=True, slots=True)
class Proposal(Command):
    """Carry out `command` at the boundary after `at_step` executed steps, if the viewer confirms it by then.

    The id is that of the proposal: a command that is proposed again for a later step has another one.
    """

    command: Command
    at_step: int


@dataclass(frozen=True, slots=True)
class Confirmation(Command):
    """All ranks have accepted the proposal with the id `proposal`."""

    proposal: int
    is_decided: bool = False
    """A rank has carried it out, so the decision is made: all ranks do."""


@dataclass(frozen=True, slots=True)
class Cancellation(Command):
    """No rank carries out the proposal with the id `proposal`.

    A viewer says so only if it has not confirmed the proposal, or if a rank has read in the store that it is cancelled.
    """

    proposal: int
