"""What a freeze or an unfreeze of a row would change, with the origin of each number, as facts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gradtui.protocol.vocabulary import ParameterState, Phase
from gradtui.run.state.forecast import RECORDS_NOTHING, Forecast, gradient_bytes, optimizer_rules
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_classified
from gradtui.run.state.step_peaks import step_peaks
from gradtui.run.state.toggles import ToggleEffect, toggle_effect


class Inexact(Enum):
    """Why the numbers of a forecast are those of the rules."""

    CANNOT_REPEAT = "the planner cannot repeat some operations"
    COMPILED = "the script uses torch.compile"
    NOT_PROFILED = "no step has been profiled"
    NOT_RECORDED = "the operations of a step could not be recorded"
    TURNS = "several optimizers take turns"
    REPEATING = "the planner has not answered yet"


@dataclass(frozen=True)
class WhatIf:
    """What a toggle of a row would change."""

    effect: ToggleEffect
    tensors: int | None = None
    """How many tensors would get a gradient, or would get none; None where the planner knows it, and not the rules."""
    rules: tuple[tuple[str, int, int], ...] = ()
    """What the optimizers keep for each tensor: see `optimizer_rules`."""
    operations: tuple[int, int] | None = None
    """The number of operations that the planner repeats, and the step in which they were recorded."""
    largest: tuple[tuple[str, int], ...] = ()
    """The modules with the largest parts of what autograd keeps; an empty path stands for none."""
    peak_now: tuple[Phase, int] | None = None
    """The phase and the step of the present peak."""
    inexact: Inexact | None = None
    """None where the numbers are exact."""
    details: tuple[str, ...] = ()
    """Of `inexact`: the operations, or what was missing."""


def what_if(state: RunState, path: str, parameters: range) -> WhatIf | None:
    """Return what a toggle of the row with this path and these parameters would change; None where nothing can be said."""
    if state.ended is not None or not parameters or not is_classified(state.tree):
        return None
    effect = toggle_effect(state, path, parameters)
    change = effect.forecast
    if effect.toggle is None or (change is None and not effect.would_fail):
        return None
    if change is None or not (change.starts or change.stops):
        return WhatIf(effect)
    modules, operations, peaks = state.tree.modules, state.operations, step_peaks(state)
    inexact, details = _inexact(state, change)
    return WhatIf(
        effect,
        _tensors(state, change),
        tuple(optimizer_rules(state, change)),
        (len(operations.operations), operations.step) if operations is not None else None,
        tuple((modules[at].path or modules[at].name if at >= 0 else "", size) for at, size in change.largest),
        (peaks.highest[0], peaks.step) if peaks is not None else None,
        inexact,
        details,
    )


def _tensors(state: RunState, change: Forecast) -> int | None:
    tree, infos, sign = state.tree, state.tree.parameters, 1 if change.starts else -1
    modes = tree.gradient_flow.grad_modes if tree.gradient_flow is not None else ""
    get = [index for index in change.stops if tree.states[index] != ParameterState.UNREACHED.value]
    get += [index for index in change.starts if not modes or modes[infos[index].module] not in RECORDS_NOTHING]
    is_theirs = sign * sum(gradient_bytes(infos[index]) for index in get) == change.gradients
    return len(get) if is_theirs else None


def _inexact(state: RunState, change: Forecast) -> tuple[Inexact | None, tuple[str, ...]]:
    operations = state.operations
    if change.is_exact:
        return None, ()
    if change.why_not_exact:
        return Inexact.CANNOT_REPEAT, change.why_not_exact
    if state.has_compiled_code or state.tree.compiled:
        return Inexact.COMPILED, ()
    if operations is None:
        return Inexact.NOT_PROFILED, ()
    if operations.missing:
        return Inexact.NOT_RECORDED, (operations.missing,)
    return (Inexact.TURNS if len(state.tree.turns) > 1 else Inexact.REPEATING), ()
