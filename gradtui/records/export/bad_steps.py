"""The parts of the summary about the first NaN and about spikes, with their batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import NonFiniteFound, SpikeFound
from gradtui.protocol.summary_gradients import BadStep, BadStepOutcome, Batch, Spike
from gradtui.records.export.same_fields import taken
from gradtui.run.text.bad_steps import loss_spike_text, nonfinite_text


def bad_step(event: NonFiniteFound) -> BadStep:
    """Return where NaN or Inf appeared first."""
    return taken(
        BadStep,
        event,
        phase=event.phase and event.phase.value,
        cause=event.cause and event.cause.value,
        outcome=taken(BadStepOutcome, event.outcome) if event.outcome is not None else None,
        seconds=event.at,
        last_finite_step=event.last_finite,
        earliest_step=event.earliest or event.step,
        in_words=nonfinite_text(event),
        **_batches(event.batches),
    )


def spike(event: SpikeFound) -> Spike:
    """Return a spike."""
    return taken(Spike, event, seconds=event.at, in_words=loss_spike_text(event), **_batches(event.batches))


def _batches(batches: Sequence[NamedBatch]) -> dict[str, Any]:
    found = [taken(Batch, each) for each in batches]
    return {"batch": found[0] if found else None, "other_batches": tuple(found[1:])}
