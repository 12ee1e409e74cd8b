"""Makes the command for a user request, or the reason why there is none. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradtui.protocol.commands import (
    Command,
    Pause,
    Resume,
    RunSteps,
    SaveAllocatorSnapshot,
    SetTrainable,
    TraceStep,
)
from gradtui.state.run_state import RunState
from gradtui.state.selectors import RunStatus, run_status, subtree, trainable_wish
from gradtui.tui.tree import buffer_at, row_path

Make = Callable[[int], Command]


@dataclass(frozen=True)
class Refusal:
    """Why no command was sent, as a sentence for the user."""

    reason: str


OVER = "The run has ended; there is nothing left to change."


def toggle(state: RunState, row: int | None) -> Make | Refusal:
    """Freeze the row (see `tree_rows`) if anything in it trains, else unfreeze it."""
    if row is None:
        return Refusal("There is no model yet.")
    if state.ended is not None:
        return Refusal(OVER)
    tree = state.tree
    if buffer_at(tree, row) is not None:
        return is_buffer(state, row)
    if row < 0:
        path, parameters = tree.parameters[~row].path, range(~row, ~row + 1)
    else:
        path, parameters = tree.modules[row].path, subtree(tree.modules[row])
    name = path or "the model"
    if not parameters:
        return Refusal(f"There is nothing to freeze in {name}: it has no parameters.")
    wish = trainable_wish(state, parameters)
    if wish is None:
        return Refusal(f"Whether {name} trains is not known before the first step.")
    return lambda number: SetTrainable(number, path, wish)


def is_buffer(state: RunState, row: int) -> Refusal:
    """Say why a buffer can be neither frozen nor unfrozen."""
    return Refusal(f"{row_path(state.tree, row)} is a buffer: it has no gradient, and no optimizer updates it.")


def objection_to_freezing(state: RunState) -> Refusal | None:
    """Say why nothing can be frozen; None if it can."""
    if state.ended is not None:
        return Refusal(OVER)
    return None if state.tree.parameters else Refusal("There is no model yet.")


def export_schedule(state: RunState, save: Callable[[RunState], str] | None) -> str:
    """Write the changes made to the run to a file; return the sentence to show to the user."""
    if not state.intervention_count:
        return "Nothing has been done to this run yet: there is nothing to write down."
    try:
        return save(state) if save is not None else "There is no place to write files to."
    except OSError as error:
        return f"It could not be written: {error.strerror or error}"


def pause(state: RunState) -> Make | Refusal:
    """Pause a running run or resume a paused one; a pending request is reversed."""
    if state.ended is not None:
        return Refusal(OVER)
    held = run_status(state) in (RunStatus.PAUSED, RunStatus.PAUSING)
    return Resume if held else Pause


def trace_step(state: RunState) -> Make | Refusal:
    """Profile the memory of the next step."""
    return Refusal(OVER) if state.ended is not None else TraceStep


def save_snapshot(state: RunState) -> Make | Refusal:
    """Write the CUDA allocator's snapshot to a file."""
    return Refusal(OVER) if state.ended is not None else SaveAllocatorSnapshot


def one_step(state: RunState) -> Make | Refusal:
    """Run one optimizer step, then pause."""
    if state.ended is not None:
        return Refusal(OVER)
    return lambda number: RunSteps(number, 1)
