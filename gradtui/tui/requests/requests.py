"""The table of what the user may request of a run: what each request needs, and the command it makes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol import commands
from gradtui.protocol.vocabulary import ParameterInfo
from gradtui.run.state.changes.toggles import restored_by, toggle_of
from gradtui.run.state.forecasts.forecast import untrainable
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus, row_parameters, run_status
from gradtui.run.state.tree.rows import buffer_at, row_path
from gradtui.run.text import refusals

Make = Callable[[int], commands.Command]
"""Makes a command from its id."""


@dataclass(frozen=True)
class Refusal:
    """Why no command was sent, as a sentence for the user."""

    reason: str


OVER = "The run has ended; there is nothing left to change."
_NO_MODEL = "There is no model yet."

Needs = Literal["run", "model", "parameters", "module"]
"""What must be there: a run that has not ended; in addition a model, a row other than a buffer, or the row of a module."""


@dataclass(frozen=True)
class Request:
    """One line of the table.

    Args:
        command: makes the command from its id; if `needs` names a row, also from the row's path; for a toggle, also from the
            new value.
        needs: what must be there.
        toggle_of: for a toggle, returns the value that the command reverses, or why it is unknown. A pending command counts as
            applied. Receives the row if `needs` names one.
        of_row: makes the command from its row, instead of all others.
    """

    command: Callable[..., commands.Command]
    needs: Needs = "run"
    toggle_of: Callable[..., bool | Refusal] | None = None
    of_row: Callable[[RunState, int], Make | Refusal] | None = None


def command_for(name: str, state: RunState, row: int | None) -> Make | Refusal:
    """Return what makes the command of a request in `REQUESTS`, or why there is none.

    Args:
        name: the request, which is the id of its action.
        state: the run.
        row: the row under the cursor (see `tree_rows`), None if there are no rows.
    """
    request = REQUESTS[name]
    refusal = refusal_of(request.needs, state, row)
    if refusal is not None:
        return refusal
    made = _made(request, state, row)
    never = _never_trains(state, row, made) if row is not None and not isinstance(made, Refusal) else None
    if never is not None:
        return Refusal(f"Cannot unfreeze that: {refusals.not_floating_point(never.path, never.dtype)}.")
    return made


def _made(request: Request, state: RunState, row: int | None) -> Make | Refusal:
    if request.of_row is not None and row is not None:
        return request.of_row(state, row)
    rows = (row,) if row is not None and request.needs in ("parameters", "module") else ()
    arguments: list[object] = [row_path(state.tree, row) for row in rows]
    if request.toggle_of is not None:
        now = request.toggle_of(state, *rows)
        if isinstance(now, Refusal):
            return now
        arguments.append(not now)
    return lambda number: request.command(number, *arguments)


def _never_trains(state: RunState, row: int, make: Make) -> ParameterInfo | None:
    """Return a parameter of the row that an unfreeze names and that can have no gradient; None if there is none."""
    command, inside = make(0), row_parameters(state.tree, row)
    if not isinstance(command, commands.SetTrainable) or not command.trainable:
        return None
    return untrainable(state.tree, restored_by(state.tree, command, inside) if command.restore else inside)


def refusal_of(needs: Needs, state: RunState, row: int | None = None) -> Refusal | None:
    """Return why a request is refused that needs `needs`; None if all is there."""
    if row is None and needs in ("parameters", "module"):
        return Refusal(_NO_MODEL)
    if state.ended is not None:
        return Refusal(OVER)
    if state.out_of_sight is not None:
        return Refusal(f"Nothing can be changed any more: {state.out_of_sight}.")
    if needs == "model" and not state.tree.parameters:
        return Refusal(_NO_MODEL)
    if row is None or row >= 0:
        return None
    is_buffer = buffer_at(state.tree, row) is not None
    if needs == "module":
        kind = "buffer" if is_buffer else "parameter"
        return Refusal(f"{row_path(state.tree, row)} is a {kind}; this is for modules.")
    if needs == "parameters" and is_buffer:
        return Refusal(f"{row_path(state.tree, row)} is a buffer: it has no gradient, and no optimizer updates it.")
    return None


def _toggle_trainable(state: RunState, row: int) -> Make | Refusal:
    parameters, path = row_parameters(state.tree, row), row_path(state.tree, row)
    name = path or "the model"
    if not parameters:
        return Refusal(f"There is nothing to freeze in {name}: it has no parameters.")
    toggle = toggle_of(state, path, parameters)
    if toggle is None:
        return Refusal(f"Whether {name} trains is not known before the first step.")
    return lambda number: commands.SetTrainable(number, path, toggle.trainable, restore=toggle.restores)


def _is_checkpointed(state: RunState, module: int) -> bool:
    path = state.tree.modules[module].path
    pending = [c.on for c in state.pending.values() if isinstance(c, commands.SetCheckpointing) and c.path == path]
    return pending[-1] if pending else module in state.tree.checkpointed


def _is_in_training_mode(state: RunState, module: int) -> bool | Refusal:
    path = state.tree.modules[module].path
    pending = [c.training for c in state.pending.values() if isinstance(c, commands.SetMode) and c.path == path]
    known = state.tree.gradient_flow.training if state.tree.gradient_flow is not None else ""
    if not pending and module >= len(known):
        return Refusal("Whether it is in training or in eval mode is not known before the first step.")
    return pending[-1] if pending else known[module] in "1h"


def _pauses_at_bad_step(state: RunState) -> bool:
    pending = [c.on for c in state.pending.values() if isinstance(c, commands.PauseAtBadStep)]
    return pending[-1] if pending else state.pauses_at_bad_step


def _follows_micro_steps(state: RunState) -> bool:
    pending = [c.on for c in state.pending.values() if isinstance(c, commands.FollowMicroSteps)]
    return pending[-1] if pending else state.micro_norms.on


REQUESTS: dict[str, Request] = {
    "toggle_trainable": Request(commands.SetTrainable, "parameters", of_row=_toggle_trainable),
    "unfreeze_all": Request(partial(commands.SetTrainable, trainable=True), "parameters"),
    "freeze_dropping": Request(partial(commands.SetTrainable, trainable=False, state="drop"), "parameters"),
    "freeze_offloading": Request(partial(commands.SetTrainable, trainable=False, state="offload"), "parameters"),
    "verify_freezes": Request(commands.VerifyFreeze),
    "toggle_checkpointing": Request(commands.SetCheckpointing, "module", toggle_of=_is_checkpointed),
    "toggle_mode": Request(commands.SetMode, "module", toggle_of=_is_in_training_mode),
    "pause": Request(
        lambda number, pauses: commands.Pause(number) if pauses else commands.Resume(number),
        toggle_of=lambda state: run_status(state) in (RunStatus.PAUSED, RunStatus.PAUSING),
    ),
    "pause_at_bad_step": Request(commands.PauseAtBadStep, toggle_of=_pauses_at_bad_step),
    "run_one_step": Request(commands.RunSteps),
    "trace_step": Request(lambda number: commands.TraceStep(number, runs_step=True)),
    "save_snapshot": Request(commands.SaveAllocatorSnapshot),
    "follow_micro_steps": Request(commands.FollowMicroSteps, toggle_of=_follows_micro_steps),
    "zero_gradients": Request(commands.ZeroGradients),
    "stop_training": Request(commands.StopTraining),
    "keep_state": Request(commands.KeepState, "model"),
    "undo": Request(commands.Undo),
}
"""By the id of its action: each request that one key sends."""


def follow_gradient(state: RunState, row: int) -> Make | None:
    """Request the gradient path to a row; None if that is pending already, for a buffer, or after the run has ended."""
    path = row_path(state.tree, row)
    asked = any(isinstance(c, commands.TraceGradient) and c.path == path for c in state.pending.values())
    if state.ended is not None or asked or buffer_at(state.tree, row) is not None:
        return None
    return lambda number: commands.TraceGradient(number, path)
