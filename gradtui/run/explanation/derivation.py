"""Makes what a freeze or an unfreeze of a row would change, with what each number comes from. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.explanation.page_facts import Derivation
from gradtui.run.state.changes.toggles import toggle_effect
from gradtui.run.state.forecasts.forecast import RECORDS_NOTHING, Forecast, gradient_bytes, optimizer_rules
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_classified


def derivation(state: RunState, path: str, parameters: range) -> Derivation | None:
    """Return what a toggle of the row with this path and these parameters would change; None if nothing can be said."""
    if state.ended is not None or not parameters or not is_classified(state.tree):
        return None
    effect = toggle_effect(state, path, parameters)
    toggle, change = effect.toggle, effect.forecast
    if toggle is None:
        return None
    if effect.would_fail:
        return Derivation(toggle.trainable, None)
    if change is None or not (change.starts or change.stops):
        return None
    modules, peaks = state.tree.modules, step_peaks(state)
    return Derivation(
        toggle.trainable,
        change,
        _with_gradient(state, change),
        optimizer_rules(state, change),
        tuple((modules[at].path or modules[at].name if at >= 0 else "", size) for at, size in change.largest),
        (peaks.highest[0], peaks.step) if peaks is not None and change.peak is not None else None,
        state.operations,
        is_compiled=state.has_compiled_code or bool(state.tree.compiled),
        takes_turns=len(state.tree.turns) > 1,
    )


def _with_gradient(state: RunState, change: Forecast) -> int | None:
    unreached = ParameterState.UNREACHED.value
    modes = state.tree.gradient_flow.grad_modes if state.tree.gradient_flow is not None else ""
    infos, sign = state.tree.parameters, 1 if change.starts else -1
    get = [index for index in change.stops if state.tree.states[index] != unreached]
    get += [index for index in change.starts if not modes or modes[infos[index].module] not in RECORDS_NOTHING]
    return len(get) if sign * sum(gradient_bytes(infos[index]) for index in get) == change.gradients else None
