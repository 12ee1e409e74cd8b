"""Say what a freeze or an unfreeze of a row would change, and how gradtui knows each number. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.changes.toggles import toggle_effect
from gradtui.run.state.forecasts.forecast import (
    RECORDS_NOTHING,
    Forecast,
    gradient_bytes,
    optimizer_rules,
)
from gradtui.run.state.memory.step_peaks import step_peaks
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import is_classified
from gradtui.run.text.forecast import NOTHING_WOULD_TRAIN, changed_bytes, objection_clause
from gradtui.run.text.no_forecast import why_by_rules
from gradtui.run.text.units import count_text, plural, short_bytes

_SCALARS = {1: " and a step counter of 4 B", 2: " and two numbers of 4 B"}


def derivation(state: RunState, path: str, parameters: range) -> list[tuple[str, str]]:
    """Return labels and sentences: first what a toggle of the row with this path and these parameters would change, then each
    number with its origin. Empty if nothing can be said."""
    if state.ended is not None or not parameters or not is_classified(state.tree):
        return []
    effect = toggle_effect(state, path, parameters)
    if effect.toggle is None:
        return []
    label, verb = ("unfreeze", "An unfreeze") if effect.toggle.trainable else ("freeze", "A freeze")
    if effect.would_fail:
        return [(label, f"{NOTHING_WOULD_TRAIN}.")]
    change = effect.forecast
    if change is not None and (objection := objection_clause(change)):
        return [(label, f"{objection}.")]
    if change is None or not (changed := change.starts or change.stops):
        return []
    elements = count_text(change.elements).strip()
    tensors = f"{plural(len(changed), 'tensor')} of {elements} elements"
    return [
        (label, f"{verb} of {tensors} would change these numbers:"),
        ("gradients", _gradients(state, change)),
        *_optimizer(state, change),
        ("saved", _activations(state, change)),
        *_peak(state, change),
        *_missing(state, change),
    ]


def _gradients(state: RunState, change: Forecast) -> str:
    unreached = ParameterState.UNREACHED.value
    modes = state.tree.gradient_flow.grad_modes if state.tree.gradient_flow is not None else ""
    infos, sign = state.tree.parameters, 1 if change.starts else -1
    get = [index for index in change.stops if state.tree.states[index] != unreached]
    get += [index for index in change.starts if not modes or modes[infos[index].module] not in RECORDS_NOTHING]
    size = changed_bytes(change.gradients, is_exact=change.is_exact)
    rule = "A gradient has the shape and the dtype of its tensor."
    if sign * sum(gradient_bytes(infos[index]) for index in get) != change.gradients:
        return f"{size}: the repeated operations say which tensors get one now, and which would. {rule}"
    return f"{size}: the bytes of {plural(len(get), 'tensor')} that would {'get one' if change.starts else 'get none'}. {rule}"


def _optimizer(state: RunState, change: Forecast) -> Iterator[tuple[str, str]]:
    rules = "; ".join(_rule(*each) for each in optimizer_rules(state, change))
    label = "optimizer"
    if change.joining:
        joins = f"join{'s' if change.joining == 1 else ''} {change.joins or 'an optimizer'}"
        yield label, f"{plural(change.joining, 'tensor')} that no optimizer has {joins}."
        label = ""
    size = change.new_state if change.starts else change.kept_state
    if size is None:
        yield label, "Its state is not known: gradtui has rules for the optimizers of torch.optim only."
    elif change.starts and rules:
        what = f"about +{short_bytes(size)} of state" if size else "no new state"
        yield label, f"{what}: {rules}."
    elif rules:
        what = f"about {short_bytes(size)} of state stay" if size else "no state stays"
        frees = " The command palette has freezes that drop or offload it." if size else ""
        yield label, f"{what}: {rules}.{frees}"


def _rule(name: str, tensors: int, scalars: int) -> str:
    if not tensors:
        return f"{name} with these settings keeps none"
    return f"{name} keeps {plural(tensors, 'tensor')} of the same size{_SCALARS.get(scalars, '')} for each"


def _activations(state: RunState, change: Forecast) -> str:
    size = change.activations
    if size is None:
        return "What autograd keeps for backward then is not known: there is no rule for it."
    changes = changed_bytes(size, is_exact=change.is_exact)
    if change.kept is not None and state.operations is not None:
        count, step = len(state.operations.operations), state.operations.step
        now, then = short_bytes(change.kept), short_bytes(change.kept + size)
        return (
            f"{changes}: autograd keeps {now} for backward now, and {then} then. gradtui repeated the {count:,} operations of "
            f"the forward of step {step:,} with that choice, without data.{_modules(state, change)}"
        )
    if change.starts:
        return f"{changed_bytes(size, is_exact=True)}: autograd keeps all that these gradients need already."
    more = " or more" if change.at_least else ""
    return (
        f"{changes}{more}: what modules in which nothing would train kept for backward in the last sampled step, unless a "
        "gradient still passes them."
    )


def _modules(state: RunState, change: Forecast) -> str:
    modules, parts = state.tree.modules, []
    for index, size in change.largest:
        name = modules[index].path or modules[index].name if index >= 0 else "operations outside of modules"
        parts.append(f"{name} {changed_bytes(size, is_exact=True)}")
    return f" Largest differences, by the module that saves a tensor first: {', '.join(parts)}." if parts else ""


def _peak(state: RunState, change: Forecast) -> Iterator[tuple[str, str]]:
    peaks, now = step_peaks(state), change.peak_now
    if change.peak is None or change.peak_phase is None or peaks is None or now is None:
        return
    phase, _ = peaks.highest
    then = f"about {short_bytes(now + change.peak)} then, in {change.peak_phase}"
    estimate = "It is an estimate: gradtui does not know how long Python code holds a tensor."
    peak = f"about {changed_bytes(change.peak, is_exact=True)}: {short_bytes(now)} in {phase} of step {peaks.step:,}"
    yield "peak", f"{peak}, {then}. {estimate}"


def _missing(state: RunState, change: Forecast) -> Iterator[tuple[str, str]]:
    """Yield what is missing for exact numbers."""
    operations = state.operations
    if change.is_exact:
        return
    if change.why_not_exact:
        why = f"Not exact, since gradtui cannot repeat {', '.join(change.why_not_exact)}."
    elif state.has_compiled_code or state.tree.compiled:
        why = f"Not exact, since {why_by_rules(state)}."
    elif operations is None:
        why = "Not exact before the memory of a step has been profiled. The command palette profiles the next step."
    elif operations.missing:
        why = f"Not exact, since gradtui could not record the step: {operations.missing}."
    elif len(state.tree.turns) > 1:
        why = "Not exact, since several optimizers take turns, and gradtui repeats one step."
    else:
        why = "Not exact yet: gradtui has not repeated the operations of a step with that choice."
    yield "", why
