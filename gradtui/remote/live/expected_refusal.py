"""Why a run would refuse a command, as far as its state tells: in the words of the training thread. Pure."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    SetCheckpointing,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    TrainOnly,
    Undo,
)
from gradtui.remote.live.planned_choices import PlannedChange, module_named
from gradtui.run.state.changes.objections import missing_target
from gradtui.run.state.changes.toggles import restored_by
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.compiled import is_compiled
from gradtui.run.state.tree.selection import NothingSelected, find
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import refusals, would_train


def expected_refusal(state: RunState, command: Command, change: PlannedChange | None) -> str | None:
    """Return why the run would refuse a command; None if it would not, or if only the training thread can tell.

    `change` is what the command changes of what trains and of what is checkpointed; None if that is not its purpose, or if it
    names nothing.
    """
    if state.ended is not None:
        return "the run has ended"
    if isinstance(command, Undo):
        return None if state.interventions else refusals.NOTHING_TO_UNDO
    if isinstance(command, ClearBreakpoint):
        is_set = command.breakpoint in state.breakpoints
        return None if is_set else refusals.breakpoint_is_gone(command.breakpoint)
    missing = missing_target(state, command)
    if missing is not None:
        return missing
    if isinstance(command, (SetCheckpointing, SetMode)):
        return _of_module(state.tree, command)
    if isinstance(command, (SetTrainable, TrainOnly)):
        return _of_parameters(state, command, change)
    return _of_rows(state.tree, command) if isinstance(command, SetRowsTrainable) else None


def _of_rows(tree: TreeState, command: SetRowsTrainable) -> str | None:
    try:
        would_train(tree, command)
    except NothingSelected as nothing:
        return str(nothing)
    return None


def _of_module(tree: TreeState, command: SetCheckpointing | SetMode) -> str | None:
    index = module_named(tree, command.path)
    if index is None:
        return refusals.IS_PARAMETER if tree.modules else refusals.NO_MODEL
    if isinstance(command, SetMode):
        return None
    if command.on is (index in tree.checkpointed):
        return refusals.ALREADY_SO
    if not command.on:
        return None
    around = tree.modules[index].parent
    if around < 0:
        return refusals.WHOLE_MODEL
    if is_compiled(tree, index):
        return refusals.COMPILED
    while around >= 0 and around not in tree.checkpointed:
        around = tree.modules[around].parent
    return refusals.within_checkpointed(tree.modules[around].path) if around >= 0 else None


def _of_parameters(state: RunState, command: SetTrainable | TrainOnly, change: PlannedChange | None) -> str | None:
    if change is None:
        return refusals.NO_MODEL
    path, indices = find(command.selection if isinstance(command, TrainOnly) else command.path, state.tree)
    shown, by_rules = path or "the model", change.forecast
    if not indices:
        return refusals.NO_PARAMETERS
    if by_rules.would_fail:
        return refusals.NOTHING_TRAINS
    if by_rules.untrainable is not None:
        return refusals.not_floating_point(by_rules.untrainable.path, by_rules.untrainable.dtype)
    if by_rules.stops or by_rules.starts or by_rules.holds or by_rules.releases:
        return None
    releases = isinstance(command, TrainOnly) or (command.trainable and not command.restore)
    if releases and not state.tree.frozen_rows.keys().isdisjoint(indices):
        return None
    if isinstance(command, TrainOnly):
        return refusals.already(shown, "all that trains")
    if command.restore and not restored_by(state.tree, replace(command, path=path), indices):
        return refusals.nothing_to_restore(shown)
    if not command.trainable and command.state != "keep":
        # The freeze also acts on the optimizer state of what is frozen already.
        return None
    return refusals.already(shown, "trainable" if command.trainable else "frozen")
