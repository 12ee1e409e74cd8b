"""Why a parameter is in its state, as facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.vocabulary import ParameterState, Reach, StateReason
from gradtui.run.state.barriers import Barriers, barriers_of
from gradtui.run.state.model_records import is_evaluated_only
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import kept_for, model_of, state_of
from gradtui.run.state.tree_state import TreeState

_EMPTY = (ParameterState.UNREACHED.value, ParameterState.CUT.value)


@dataclass(frozen=True)
class Cause:
    """Why a parameter is in its state. At most one field says something; none does where the state says everything."""

    reason: StateReason = StateReason.NONE
    """The cause as the probe knows it."""
    reach: str = ""
    """How far backward runs in its module, a letter of `Reach`, where no gradient comes."""
    barriers: Barriers | None = None
    """What keeps backward out of the module, where it never enters it."""
    passes_on: str = ""
    """The path of the parameter to which the gradient passes on."""
    evaluated_only: bool = False
    """Its model was only evaluated."""
    skipped_steps: int = 0
    """Steps that the loss scaler has skipped, where it skipped the last one."""


NO_CAUSE = Cause()


def cause_of(state: RunState, index: int) -> Cause:
    """Return why a parameter is in its state, as far as known."""
    tree, kind = state.tree, state_of(state.tree, index)
    module = tree.parameters[index].module
    if kind is ParameterState.UNKNOWN and is_evaluated_only(state, model_of(tree, module)):
        return Cause(evaluated_only=True)
    if kind is ParameterState.SKIPPED:
        return Cause(skipped_steps=state.skipped_steps)
    cause = state_cause(tree, index)
    if kind is ParameterState.FLOW_THROUGH and cause == NO_CAUSE:
        upstream = kept_for(tree, module)
        return Cause(passes_on=tree.parameters[upstream].path) if upstream is not None else cause
    return cause


def state_cause(tree: TreeState, index: int) -> Cause:
    """Return the same as far as the last sampled step tells: what the probe knows, or why no gradient comes."""
    reason = StateReason(tree.reasons[index]) if index < len(tree.reasons) else StateReason.NONE
    if reason is StateReason.NONE and tree.states[index] in _EMPTY:
        return never_of(tree, tree.parameters[index].module)
    return Cause(reason)


def never_of(tree: TreeState, module: int) -> Cause:
    """Return why the gradient never reaches a parameter of a module, as far as known."""
    letter = tree.gradient_flow.reach[module] if tree.gradient_flow is not None and tree.gradient_flow.reach else ""
    is_barred = letter == Reach.NOT_ENTERED.value
    return Cause(reach=letter, barriers=barriers_of(tree, (module,)) if is_barred else None)
