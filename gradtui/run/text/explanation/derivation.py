"""Say what a freeze or an unfreeze of a row would change, and how gradtui knows each number. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.explanation.page_facts import Derivation
from gradtui.run.state.forecasts.forecast import Forecast
from gradtui.run.text.forecast import COMPILED_CODE, NOTHING_WOULD_TRAIN, changed_bytes, objection_clause
from gradtui.run.text.units import count_text, plural, short_bytes

_SCALARS = {1: " and a step counter of 4 B", 2: " and two numbers of 4 B"}


def derivation_words(found: Derivation) -> list[tuple[str, str]]:
    """Return labels and sentences: first what a toggle of a row would change, then each number with its origin."""
    label, verb = ("unfreeze", "An unfreeze") if found.trainable else ("freeze", "A freeze")
    change = found.change
    objection = objection_clause(change) if change is not None else NOTHING_WOULD_TRAIN
    if change is None or objection:
        return [(label, f"{objection}.")]
    tensors = (
        f"{plural(len(change.starts or change.stops), 'tensor')} of {count_text(change.elements).strip()} elements"
    )
    return [
        (label, f"{verb} of {tensors} would change these numbers:"),
        ("gradients", _gradients(found, change)),
        *_optimizer(found, change),
        ("saved", _activations(found, change)),
        *_peak(found, change),
        *_missing(found, change),
    ]


def _gradients(found: Derivation, change: Forecast) -> str:
    size, get = changed_bytes(change.gradients, is_exact=change.is_exact), found.with_gradient
    rule = "A gradient has the shape and the dtype of its tensor."
    if get is None:
        return f"{size}: the repeated operations say which tensors get one now, and which would. {rule}"
    return (
        f"{size}: the bytes of {plural(get, 'tensor')} that would {'get one' if change.starts else 'get none'}. {rule}"
    )


def _optimizer(found: Derivation, change: Forecast) -> Iterator[tuple[str, str]]:
    rules = "; ".join(_rule(*each) for each in found.rules)
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


def _activations(found: Derivation, change: Forecast) -> str:
    size = change.activations
    if size is None:
        return "What autograd keeps for backward then is not known: there is no rule for it."
    changes = changed_bytes(size, is_exact=change.is_exact)
    if change.kept is not None and found.recorded is not None:
        count, step = len(found.recorded.operations), found.recorded.step
        now, then = short_bytes(change.kept), short_bytes(change.kept + size)
        return (
            f"{changes}: autograd keeps {now} for backward now, and {then} then. gradtui repeated the {count:,} operations of "
            f"the forward of step {step:,} with that choice, without data.{_modules(found)}"
        )
    if change.starts:
        return f"{changed_bytes(size, is_exact=True)}: autograd keeps all that these gradients need already."
    more = " or more" if change.at_least else ""
    return (
        f"{changes}{more}: what modules in which nothing would train kept for backward in the last sampled step, unless a "
        "gradient still passes them."
    )


def _modules(found: Derivation) -> str:
    parts = [
        f"{name or 'operations outside of modules'} {changed_bytes(size, is_exact=True)}"
        for name, size in found.largest
    ]
    return f" Largest differences, by the module that saves a tensor first: {', '.join(parts)}." if parts else ""


def _peak(found: Derivation, change: Forecast) -> Iterator[tuple[str, str]]:
    now = change.peak_now
    if change.peak is None or change.peak_phase is None or found.peak is None or now is None:
        return
    phase, step = found.peak
    then = f"about {short_bytes(now + change.peak)} then, in {change.peak_phase}"
    estimate = "It is an estimate: gradtui does not know how long Python code holds a tensor."
    peak = f"about {changed_bytes(change.peak, is_exact=True)}: {short_bytes(now)} in {phase} of step {step:,}"
    yield "peak", f"{peak}, {then}. {estimate}"


def _missing(found: Derivation, change: Forecast) -> Iterator[tuple[str, str]]:
    """Yield what is missing for exact numbers."""
    if change.is_exact:
        return
    if change.why_not_exact:
        why = f"Not exact, since gradtui cannot repeat {', '.join(change.why_not_exact)}."
    elif found.is_compiled:
        why = f"Not exact, since {COMPILED_CODE}."
    elif found.recorded is None:
        why = "Not exact before the memory of a step has been profiled. The command palette profiles the next step."
    elif found.recorded.missing:
        why = f"Not exact, since gradtui could not record the step: {found.recorded.missing}."
    elif found.takes_turns:
        why = "Not exact, since several optimizers take turns, and gradtui repeats one step."
    else:
        why = "Not exact yet: gradtui has not repeated the operations of a step with that choice."
    yield "", why
