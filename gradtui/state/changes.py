"""What was done to the run, and what came of it, oldest first. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gradtui.protocol.commands import Command, Intervention, Undo, ZeroGradients
from gradtui.protocol.events import CommandApplied, FreezeVerified, ReceiptTaken
from gradtui.state.run_state import RunState

CHANGES_LISTED = 200


class ChangeStatus(Enum):
    """What became of a command."""

    PENDING = "pending"
    APPLIED = "applied"
    REFUSED = "refused"
    UNDONE = "undone"


@dataclass(frozen=True)
class Change:
    """One command that changes the script's objects."""

    step: int
    """The step after which it was applied or refused; while it is pending, the present one."""
    command: Command
    status: ChangeStatus
    text: str = ""
    """The answer: what it did, or why it was refused. Empty while it is pending."""
    receipt: ReceiptTaken | None = None
    verified: FreezeVerified | None = None


def changes(state: RunState, most: int = CHANGES_LISTED) -> list[Change]:
    """Return the newest `most` changes. Those that still wait for a step boundary come last."""
    undone = _undone(state.interventions)
    done = [
        (
            event.at,
            Change(
                event.step,
                event.command,
                ChangeStatus.UNDONE if event.command.id in undone.values() else ChangeStatus.APPLIED,
                event.text,
                state.receipts.get(event.command.id),
                _verification(state, event.command, undone),
            ),
        )
        for event in state.interventions[-most:]
    ]
    done += [
        (event.at, Change(event.step, event.command, ChangeStatus.REFUSED, event.reason))
        for event in state.refused
        if isinstance(event.command, Intervention)
    ]
    done.sort(key=lambda each: each[0])
    waiting = [
        Change(state.step, command, ChangeStatus.PENDING)
        for command in state.pending.values()
        if isinstance(command, Intervention)
    ]
    return [*(change for _, change in done), *waiting][-most:]


def _undone(interventions: list[CommandApplied]) -> dict[int, int]:
    """Return the id of the command that each undo has undone, by the id of the undo."""
    undone: dict[int, int] = {}
    stack: list[int] = []
    for event in interventions:
        if not isinstance(event.command, Undo):
            if not isinstance(event.command, ZeroGradients):
                stack.append(event.command.id)
        elif stack:
            undone[event.command.id] = stack.pop()
    return undone


def _verification(state: RunState, command: Command, undone: dict[int, int]) -> FreezeVerified | None:
    """Return the verification of a freeze. The freeze that an undo of an unfreeze makes has the id of that unfreeze."""
    if command.id in undone.values():
        return None
    return state.verified.get(undone.get(command.id, command.id))
