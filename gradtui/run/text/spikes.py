"""Describe a spike of the loss or of the gradient norm. Pure."""

from __future__ import annotations

from gradtui.protocol.events import SpikeFound
from gradtui.run.text.batches import in_brackets

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
