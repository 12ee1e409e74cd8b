"""Say what a freeze or an unfreeze of a row would change, and how gradtui knows each number. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.explanation.what_if import Inexact, WhatIf
from gradtui.run.state.forecast import Forecast
from gradtui.run.text.forecast import NOTHING_WOULD_TRAIN, objection_clause
from gradtui.run.text.no_forecast import COMPILED
from gradtui.run.text.units import count_text, plural, short_bytes

_SCALARS = {1: " and a step counter of 4 B", 2: " and two numbers of 4 B"}
_INEXACT = {
    Inexact.CANNOT_REPEAT: "Not exact, since gradtui cannot repeat {}.",
    Inexact.COMPILED: f"Not exact, since {COMPILED}.",
    Inexact.NOT_PROFILED: (
        "Not exact before the memory of a step has been profiled. The command palette profiles the next step."
    ),
    Inexact.NOT_RECORDED: "Not exact, since gradtui could not record the step: {}.",
    Inexact.TURNS: "Not exact, since several optimizers take turns, and gradtui repeats one step.",
    Inexact.REPEATING: "Not exact yet: gradtui is repeating the operations of a step.",
}


def derivation(found: WhatIf | None) -> list[tuple[str, str]]:
    """Return labels and sentences: first what a toggle of a row would change, then each number with its origin. Empty if
    nothing can be said."""
    toggle, change = (found.effect.toggle, found.effect.forecast) if found is not None else (None, None)
    if found is None or toggle is None:
        return []
    label, verb = ("unfreeze", "An unfreeze") if toggle.trainable else ("freeze", "A freeze")
    if found.effect.would_fail:
        return [(label, f"{NOTHING_WOULD_TRAIN}.")]
    if change is not None and (objection := objection_clause(change)):
        return [(label, f"{objection}.")]
    if change is None or not (changed := change.starts or change.stops):
        return []
    tensors = f"{plural(len(changed), 'tensor')} of {count_text(change.elements).strip()} elements"
    return [
        (label, f"{verb} of {tensors} would change these numbers:"),
        ("gradients", _gradients(found, change)),
        *_optimizer(found, change),
        ("saved", _activations(found, change)),
        *_peak(found, change),
        *([("", _INEXACT[found.inexact].format(", ".join(found.details)))] if found.inexact is not None else []),
    ]


def _gradients(found: WhatIf, change: Forecast) -> str:
    size, rule = _sized(change.gradients, change), "A gradient has the shape and the dtype of its tensor."
    if found.tensors is None:
        return f"{size}: the repeated operations say which tensors get one now, and which would. {rule}"
    get = "get one" if change.starts else "get none"
    return f"{size}: the bytes of {plural(found.tensors, 'tensor')} that would {get}. {rule}"


def _optimizer(found: WhatIf, change: Forecast) -> Iterator[tuple[str, str]]:
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


def _activations(found: WhatIf, change: Forecast) -> str:
    size = change.activations
    if size is None:
        return "What autograd keeps for backward then is not known: there is no rule for it."
    if change.kept is not None and found.operations is not None:
        count, step = found.operations
        now, then = short_bytes(change.kept), short_bytes(change.kept + size)
        parts = ", ".join(f"{path or 'operations outside of modules'} {_change(more)}" for path, more in found.largest)
        largest = f" Largest differences, by the module that saves a tensor first: {parts}." if parts else ""
        return (
            f"{_sized(size, change)}: autograd keeps {now} for backward now, and {then} then. gradtui repeated the {count:,} "
            f"operations of the forward of step {step:,} with that choice, without data.{largest}"
        )
    if change.starts:
        return f"{_change(size)}: autograd keeps all that these gradients need already."
    more = " or more" if change.at_least else ""
    return (
        f"{_sized(size, change)}{more}: what modules in which nothing would train kept for backward in the last sampled step, "
        "unless a gradient still passes them."
    )


def _peak(found: WhatIf, change: Forecast) -> Iterator[tuple[str, str]]:
    if change.peak is None or change.peak_phase is None or found.peak_now is None or change.peak_now is None:
        return
    phase, step = found.peak_now
    now, then = (
        short_bytes(change.peak_now),
        f"about {short_bytes(change.peak_now + change.peak)} then, in {change.peak_phase}",
    )
    estimate = "It is an estimate: gradtui does not know how long Python code holds a tensor."
    yield "peak", f"about {_change(change.peak)}: {now} in {phase} of step {step:,}, {then}. {estimate}"


def _sized(size: int, change: Forecast) -> str:
    return _change(size) if change.is_exact or not size else f"about {_change(size)}"


def _change(size: int) -> str:
    return f"{'−' if size < 0 else '+'}{short_bytes(abs(size))}" if size else "unchanged"
