"""Describe in words where NaN or Inf appeared first, and spikes of the loss or of the gradient norm. Pure."""

from __future__ import annotations

from gradtui.protocol.events import NonFiniteCause, NonFiniteFound, SpikeFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.batches import in_brackets
from gradtui.run.text.units import plural

FEW = ("float16", "bfloat16")
"""Dtypes in which a small number that is added may be lost."""
_OVERFLOWS = (NonFiniteCause.OVERFLOW, NonFiniteCause.EXP_OVERFLOW)


def nonfinite_text(event: NonFiniteFound, *, with_hold: bool = False) -> str:
    """Return one line: `first NaN: backward of step 412: loss finite, gradient of head.weight NaN (last finite step 411)`."""
    times = "first" if event.number == 1 else "again"
    held = "; training pauses, as requested" if event.holds and with_hold else ""
    return f"{times} {event.value}: {_where(event)}{_since(event)}{_outcome(event)}{held}"


def _where(event: NonFiniteFound) -> str:
    if event.phase is Phase.DATA:
        return f"in the batch of step {event.step:,}{in_brackets(event.batches)}"
    if event.phase is Phase.LOAD:
        return f"weights of {_parameters(event)} before the first step"
    if event.phase is Phase.FORWARD:
        finite = "; the batch was finite" * event.batch_is_finite
        return f"forward of step {event.step:,}{in_brackets(event.batches)}{_module(event)}{_cause(event)}{finite}"
    if event.phase is Phase.BACKWARD:
        loss = "loss finite, " if event.exact or event.parameter is None else ""
        first = event.earliest
        when = f"backward of step {event.step:,}" if first is None else f"between steps {first:,} and {event.step:,}"
        source = f", probably from {event.operation}" if event.operation is not None else ""
        return f"{when}{in_brackets(event.batches)}: {loss}{_gradients(event)}{_cause(event) or source}"
    if event.phase is Phase.OPTIMIZER:
        rate = f" (lr {event.learning_rate:g})" if event.learning_rate is not None else ""
        surely = "in" if event.exact else "in or before"
        return f"weights of {_parameters(event)} {surely} the optimizer step {event.step:,}{rate}{_lost(event)}{_cause(event)}"
    return _between(event)


def _cause(event: NonFiniteFound) -> str:
    """What the first bad value was made of, and in which dtype if it is one with few numbers."""
    dtype = f" in {event.dtype}" if event.dtype and (event.dtype in FEW or event.cause in _OVERFLOWS) else ""
    return f": {event.cause.value}{dtype}" if event.cause is not None else ""


def _lost(event: NonFiniteFound) -> str:
    if event.lost_eps is None:
        return ""
    eps, dtype = event.lost_eps
    return f": eps {eps:g} is 0 in {dtype}" if eps else ": eps is 0, and so is what it is added to"


def _outcome(event: NonFiniteFound) -> str:
    """What came of the step."""
    outcome = event.outcome
    if outcome is None:
        return ""
    if not outcome.weights_are_finite:
        more = f" and {plural(outcome.others, 'other')}" if outcome.others else ""
        return f"; the optimizer step {outcome.step:,} wrote it to the weights of {outcome.parameter}{more}"
    by = {"scaler": "the GradScaler skipped the step, and ", "script": "the script left these gradients out, and "}
    if outcome.left_out_by not in by:
        # A later step may have overwritten them.
        return f"; all weights were finite after step {outcome.step:,}"
    return f"; {by[outcome.left_out_by]}all weights stayed finite"


def _between(event: NonFiniteFound) -> str:
    """What was met later than it came, or on a device together with what it may come from."""
    held = "the loss" if event.parameter is None else f"weights of {_parameters(event)}"
    # Weights were so before the step began; the loss may have become so in it.
    first, last = event.earliest or (event.last_finite or 0) + 1, event.step - (event.parameter is not None)
    if first < last:
        return f"{held}, somewhere in steps {first:,} to {last:,}, which were not all measured"
    return f"{held} in step {last:,}{in_brackets(event.batches)}: by its forward, or an update before it"


def _module(event: NonFiniteFound) -> str:
    begins_in = event.module
    if begins_in is None and event.until is None:
        return ", in the loss, outside of any module" if event.exact else ", in which module is not known"
    begins, ends = _name(begins_in), _name(event.until)
    if event.is_input:
        return f", in the input of {begins}" if event.exact else f", in the input of {begins} or of a module after it"
    if event.until is None:
        return f", at or after {begins}"
    if begins_in != event.until:
        is_around = begins_in is None or not event.until or begins_in.startswith(f"{event.until}.")
        return f", in {ends}, at or after {begins}" if is_around else f", somewhere from {begins} to {ends}"
    return f", in {begins} (its output)" if event.exact else f", in {begins} or after it"


def _name(path: str | None) -> str:
    return "outside of any module" if path is None else path or "the model"


def _gradients(event: NonFiniteFound) -> str:
    if event.parameter is None:
        unknown = "" if event.exact else "; which was first is not known, since clipping spreads it to all"
        return f"gradients {event.value}{unknown}"
    more = f", and of {plural(event.others, 'other')}" if event.others else ""
    return f"gradient of {event.parameter} {event.value}{more}"


def _parameters(event: NonFiniteFound) -> str:
    return f"{event.parameter}" + (f" and {plural(event.others, 'other')}" if event.others else "")


def _since(event: NonFiniteFound) -> str:
    if event.phase is Phase.LOAD or event.last_finite in (None, event.step):
        return ""
    return f" (last finite step {event.last_finite:,})"


_NAMES = {"loss": "loss", "norm": "gradient norm"}


def loss_spike_text(spike: SpikeFound) -> str:
    """Return one line: `loss spike: 48.2 at step 41 (batch 41 of 100 of epoch 1: samples 4, 7); usual is 0.25`."""
    backward = f", backward {spike.micro_step:,} of it" if spike.micro_step > 1 else ""
    clipped = f"; clipped to {spike.clipped_at:g}" if spike.clipped_at is not None else ""
    came = f"; usual again at step {spike.back_at:,}" if spike.back_at is not None else "; it stays high" * spike.stays
    where = f"at step {spike.step:,}{backward}{in_brackets(spike.batches)}"
    return f"{loss_spike_name(spike)} spike: {spike.value:.4g} {where}; usual is {spike.usual:.4g}{clipped}{came}"


def loss_spike_name(spike: SpikeFound) -> str:
    """Return what the spike is one of."""
    return _NAMES[spike.metric]
