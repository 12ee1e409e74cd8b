"""Makes the commands that change a live run other than freezing and pausing. Pure."""

from __future__ import annotations

from typing import Literal

from gradtui.protocol.commands import (
    FollowMicroSteps,
    PauseAtBadStep,
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
from gradtui.tui.requests.requests import OVER, Make, Refusal, is_buffer
from gradtui.tui.tree import buffer_at, row_path


def checkpointing(state: RunState, row: int | None) -> Make | Refusal:
    """Turn checkpointing of the row's module (see `tree_rows`) on or off; a pending request is reversed."""
    module = _module(state, row)
    if isinstance(module, Refusal):
        return module
    path = state.tree.modules[module].path
    waiting = [c.on for c in state.pending.values() if isinstance(c, SetCheckpointing) and c.path == path]
    on = waiting[-1] if waiting else module in state.tree.checkpointed
    return lambda number: SetCheckpointing(number, path, not on)


def mode(state: RunState, row: int | None) -> Make | Refusal:
    """Put the module of a row in eval mode if it was last known in training mode, else in training mode."""
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
    """Request the gradient path to a row; None if that is pending already, for a buffer, or after the run has ended."""
    path = row_path(state.tree, row)
    asked = any(isinstance(c, TraceGradient) and c.path == path for c in state.pending.values())
    if state.ended is not None or asked or buffer_at(state.tree, row) is not None:
        return None
    return lambda number: TraceGradient(number, path)


def freeze_dropping(state: RunState, row: int | None) -> Make | Refusal:
    """Freeze the row and drop its optimizer state."""
    return _freeze(state, row, "drop")


def freeze_offloading(state: RunState, row: int | None) -> Make | Refusal:
    """Freeze the row and keep its optimizer state in host memory until the row is unfrozen."""
    return _freeze(state, row, "offload")


def _freeze(state: RunState, row: int | None, fate: Literal["drop", "offload"]) -> Make | Refusal:
    if row is None:
        return Refusal("There is no model yet.")
    if state.ended is not None:
        return Refusal(OVER)
    if buffer_at(state.tree, row) is not None:
        return is_buffer(state, row)
    path = row_path(state.tree, row)
    return lambda number: SetTrainable(number, path, False, fate)


def verify(state: RunState) -> Make | Refusal:
    """Verify that frozen tensors have not changed since the freeze."""
    return Refusal(OVER) if state.ended is not None else VerifyFreeze


def zero_gradients(state: RunState) -> Make | Refusal:
    """Clear all gradients."""
    return Refusal(OVER) if state.ended is not None else ZeroGradients


def micro_steps(state: RunState) -> Make | Refusal:
    """Turn the measurement of gradients at each micro-step on or off; a pending request is reversed."""
    if state.ended is not None:
        return Refusal(OVER)
    waiting = [command.on for command in state.pending.values() if isinstance(command, FollowMicroSteps)]
    on = waiting[-1] if waiting else state.micro_norms.on
    return lambda number: FollowMicroSteps(number, not on)


def undo(state: RunState) -> Make | Refusal:
    """Undo the latest change."""
    return Refusal(OVER) if state.ended is not None else Undo


def pause_at_bad_step(state: RunState) -> Make | Refusal:
    """Turn the pause at the next NaN or Inf on or off; a pending request is reversed."""
    if state.ended is not None:
        return Refusal(OVER)
    waiting = [command.on for command in state.pending.values() if isinstance(command, PauseAtBadStep)]
    on = waiting[-1] if waiting else state.pauses_at_bad_step
    return lambda number: PauseAtBadStep(number, not on)


def stop(state: RunState) -> Make | Refusal:
    """End the script at the next step boundary."""
    return Refusal(OVER) if state.ended is not None else StopTraining


def _module(state: RunState, row: int | None) -> int | Refusal:
    if row is None:
        return Refusal("There is no model yet.")
    if state.ended is not None:
        return Refusal(OVER)
    if row < 0:
        kind = "parameter" if buffer_at(state.tree, row) is None else "buffer"
        return Refusal(f"{row_path(state.tree, row)} is a {kind}; this is for modules.")
    return row
