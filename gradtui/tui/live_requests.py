"""From a key to the command for it, for what else is done to a live run than freezing and holding it. Pure."""

from __future__ import annotations

from typing import Literal

from gradtui.protocol.commands import (
    SetCheckpointing,
    SetMode,
    SetTrainable,
    StopTraining,
    TraceGradient,
    Undo,
    VerifyFreeze,
    ZeroGradients,
)
from gradtui.state.run_state import RunState
from gradtui.tui.requests import OVER, Make, Refusal


def checkpointing(state: RunState, row: int | None) -> Make | Refusal:
    """Checkpoint the module of a row (see `tree_rows`), or no longer; asked twice before the answer, the later wish counts."""
    module = _module(state, row)
    if isinstance(module, Refusal):
        return module
    path = state.tree.modules[module].path
    waiting = [c.on for c in state.pending.values() if isinstance(c, SetCheckpointing) and c.path == path]
    on = waiting[-1] if waiting else module in state.tree.checkpointed
    return lambda number: SetCheckpointing(number, path, not on)


def mode(state: RunState, row: int | None) -> Make | Refusal:
    """Put the module of a row in eval mode if it was in training mode when it was seen last, else in training mode."""
    module = _module(state, row)
    if isinstance(module, Refusal):
        return module
    path = state.tree.modules[module].path
    waiting = [c.training for c in state.pending.values() if isinstance(c, SetMode) and c.path == path]
    seen = state.tree.reach.training if state.tree.reach is not None else ""
    if not waiting and module >= len(seen):
        return Refusal("Whether it is in training or in eval mode is not known before the first step.")
    training = waiting[-1] if waiting else seen[module] == "1"
    return lambda number: SetMode(number, path, not training)


def follow_gradient(state: RunState, row: int) -> Make | None:
    """Find how the gradient comes to a row; None where that is asked for already, or nothing is to come any more."""
    path = state.tree.parameters[~row].path if row < 0 else state.tree.modules[row].path
    asked = any(isinstance(c, TraceGradient) and c.path == path for c in state.pending.values())
    if state.ended is not None or asked:
        return None
    return lambda number: TraceGradient(number, path)


def freeze_dropping(state: RunState, row: int | None) -> Make | Refusal:
    """Freeze the row and let its optimizer state go."""
    return _freeze(state, row, "drop")


def freeze_offloading(state: RunState, row: int | None) -> Make | Refusal:
    """Freeze the row, its optimizer state waiting in host memory until it is unfrozen."""
    return _freeze(state, row, "offload")


def _freeze(state: RunState, row: int | None, fate: Literal["drop", "offload"]) -> Make | Refusal:
    if row is None:
        return Refusal("There is no model yet.")
    if state.ended is not None:
        return Refusal(OVER)
    path = state.tree.parameters[~row].path if row < 0 else state.tree.modules[row].path
    return lambda number: SetTrainable(number, path, False, fate)


def verify(state: RunState) -> Make | Refusal:
    """Compare what is frozen with what it was."""
    return Refusal(OVER) if state.ended is not None else VerifyFreeze


def zero_gradients(state: RunState) -> Make | Refusal:
    """Clear all gradients."""
    return Refusal(OVER) if state.ended is not None else ZeroGradients


def undo(state: RunState) -> Make | Refusal:
    """Take the latest change back."""
    return Refusal(OVER) if state.ended is not None else Undo


def stop(state: RunState) -> Make | Refusal:
    """End the script at the next step boundary."""
    return Refusal(OVER) if state.ended is not None else StopTraining


def _module(state: RunState, row: int | None) -> int | Refusal:
    if row is None:
        return Refusal("There is no model yet.")
    if state.ended is not None:
        return Refusal(OVER)
    if row < 0:
        return Refusal(f"{state.tree.parameters[~row].path} is a parameter; this is for modules.")
    return row
