"""What was done to the run, and what came of it, oldest first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command, Intervention, SetCheckpointing
from gradtui.protocol.events import CommandApplied, FreezeVerified, ReceiptTaken
from gradtui.run.state.parts.prediction import Prediction
from gradtui.run.state.parts.tries import TryProgress, progress_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.running_statistics import Kinds

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
    forecast: Prediction | None = None
    """What was forecast of it; None if nothing was."""
    at: float | None = None
    """Seconds since the run started; None while it is pending."""
    holds: Kinds = ()
    """The modules whose running statistics it holds."""
    releases: Kinds = ()
    """The modules whose running statistics it has released."""
    is_measured: bool = True
    """Whether a receipt of it may come. False where no step before it was measured."""
    more: int = 0
    """Number of the checkpointed modules after it that this entry stands for too: those of a plan. They have the same
    measurement."""
    trial: TryProgress | None = None
    """How far a try is that is pending; None before it begins."""


def changes(state: RunState, most: int = CHANGES_LISTED) -> list[Change]:
    """Return the newest `most` changes. Those that still wait for a step boundary come last."""
    undone = {event.undone: event.step for event in state.interventions if event.undone is not None}
    shown = state.interventions[-most:]
    with_statistics = any(part.statistics for event in shown for part in event.changed)
    types = {module.path: module.type_name for module in state.tree.modules} if with_statistics else {}
    done = [
        (
            event.at,
            Change(
                event.step,
                event.command,
                ChangeStatus.UNDONE if event.command.id in undone else ChangeStatus.APPLIED,
                event.text,
                state.receipts.get(event.command.id),
                _verification(state, event, undone.get(event.command.id)),
                state.forecast_of.get(event.command.id),
                event.at,
                _statistics(types, event, trainable=False),
                _statistics(types, event, trainable=True),
                event.is_measured,
            ),
        )
        for event in shown
    ]
    done += [
        (event.at, Change(event.step, event.command, ChangeStatus.REFUSED, event.reason, at=event.at))
        for event in state.refused
        if isinstance(event.command, Intervention)
    ]
    done.sort(key=lambda each: each[0])
    waiting = [
        Change(state.step, command, ChangeStatus.PENDING, trial=progress_of(state.tries, command.id, state.step))
        for command in state.pending.values()
        if isinstance(command, Intervention)
    ]
    return [*(change for _, change in done), *waiting][-most:]


def _statistics(types: Mapping[str, str], event: CommandApplied, *, trainable: bool) -> Kinds:
    paths = [path for part in event.changed if part.trainable is trainable for path in part.statistics]
    return tuple(Counter(types.get(path, "norm") for path in paths).items())


def has_same_measurement(one: ReceiptTaken | None, other: ReceiptTaken | None) -> bool:
    """Return whether two receipts of changes at one step boundary say the same."""
    first, second = (each.effect if each is not None else None for each in (one, other))
    if first is None or second is None or not first.others:
        return False
    return replace(first, joined=()) == replace(second, joined=())


def is_repeated(state: RunState, event: ReceiptTaken) -> bool:
    """Return whether an earlier receipt of a change at the same step boundary has said the same."""
    return any(each.command != event.command and has_same_measurement(each, event) for each in state.receipts.values())


def folded(listed: Sequence[Change]) -> list[Change]:
    """Return changes as a short list: modules that were checkpointed together with the change before them, as in a plan, are
    no entries of their own."""
    found: list[Change] = []
    for change in listed:
        if found and _is_part_of(found[-1], change):
            found[-1] = replace(found[-1], more=found[-1].more + 1)
        else:
            found.append(change)
    return found


def _is_part_of(before: Change, change: Change) -> bool:
    are_applied = before.status is change.status is ChangeStatus.APPLIED and before.step == change.step
    is_block = isinstance(change.command, SetCheckpointing)
    return are_applied and is_block and has_same_measurement(before.receipt, change.receipt)


def _verification(state: RunState, event: CommandApplied, undone_at: int | None) -> FreezeVerified | None:
    """Return the verification of what a command froze.

    The freeze that an undo of an unfreeze makes has the id of that unfreeze. Their steps distinguish the two.
    """
    verified = state.verified.get(event.command.id if event.undone is None else event.undone)
    if verified is None or verified.step <= event.step or (undone_at is not None and verified.step > undone_at):
        return None
    return verified
