"""What undo can take back: the latest change alone, or the steps since it too. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import ReturnToState, Undo
from gradtui.protocol.events import CommandApplied
from gradtui.run.state.parts.kept_states import KeptStateInfo
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural, title_of_answer
from gradtui.tui.requests.requests import Make

_UNDO: Make = Undo
STANDS = "The script's own counters, its progress bar and its loader stand where they are."


@dataclass(frozen=True)
class UndoChoice:
    """A change with the state that was kept before it."""

    what: str
    """What was done, and when."""
    undo: Make
    back: Make
    """Returns to the state, which undoes the change too."""
    back_text: str


def undo_choice(state: RunState) -> UndoChoice | None:
    """Return what the user can choose; None if there is no state of the step before the latest change, or no step since."""
    change = _latest(state)
    kept = _kept_before(state, change) if change is not None else None
    if change is None or kept is None or state.step <= kept.kept.step:
        return None
    number, step = kept.kept.number, kept.kept.step
    since = plural(state.step - step, "step")
    return UndoChoice(
        f"{title_of_answer(change.text)}, at step {change.step:,}",
        _UNDO,
        lambda id_: ReturnToState(id_, state=number),
        f"Also return to step {step:,} (state {number}): without the {since} since then",
    )


def _latest(state: RunState) -> CommandApplied | None:
    """Return the change that `Undo` would take back, as far as a viewer knows."""
    undone = {each.undone for each in state.interventions if each.undone is not None}
    for applied in reversed(state.interventions):
        if isinstance(applied.command, ReturnToState):
            # What came before it belongs to steps that are given up.
            return None
        if applied.undone is None and applied.command.id not in undone:
            return applied
    return None


def _kept_before(state: RunState, change: CommandApplied) -> KeptStateInfo | None:
    found = [each for each in state.kept.states.values() if each.kept.step == change.step and each.kept.at <= change.at]
    return found[-1] if found else None
