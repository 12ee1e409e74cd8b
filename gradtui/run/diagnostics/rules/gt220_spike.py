"""GT220: the loss or the gradient norm of a step is far above that of the steps before, and of which batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import SpikeFound
from gradtui.run.diagnostics.batches import batch_evidence
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.bad_steps import loss_spike_name, loss_spike_text
from gradtui.run.text.units import listed, plural

_STEPS = 8
"""Steps that the evidence names at most."""


def check(state: RunState) -> Iterator[Match]:
    """Match the highest spike of the loss, and that of the norm."""
    for metric in ("loss", "norm"):
        found = [each for each in state.spikes if each.metric == metric]
        if found:
            yield _match(max(found, key=_height), found)


def _height(spike: SpikeFound) -> float:
    return (spike.value - spike.usual) / (spike.limit - spike.usual)


def _match(highest: SpikeFound, found: Sequence[SpikeFound]) -> Match:
    shared = _shared(found)
    more = f"; it is the highest of {plural(len(found), 'spike')}" if len(found) > 1 else ""
    if shared:
        more += f", and {'sample' if len(shared) == 1 else 'samples'} {listed(shared)} {_ARE[len(shared) > 1]} in all of them"
    return Match(
        loss_spike_text(highest) + more,
        {
            "value": highest.value,
            "usual": highest.usual,
            "limit": highest.limit,
            "spikes": len(found),
            "steps": ", ".join(str(each.step) for each in found[:_STEPS]),
            **batch_evidence(highest.batches),
            "shared_samples": ", ".join(shared),
            "back_at_step": highest.back_at,
        },
        first_step=highest.step,
        is_exact=True,
        level=None if highest.stays and highest.metric == "loss" else Level.NOTE,
        remedy=_remedy(highest),
        key=loss_spike_name(highest),
    )


_ARE = "is", "are"


def _shared(found: Sequence[SpikeFound]) -> list[str]:
    """Return the samples that are in the batches of all spikes, if there are several and all samples are known."""
    first = [each.batches[0] if each.batches else NamedBatch(0) for each in found]
    if len(first) < 2 or any(not batch.samples or batch.sample_count > len(batch.samples) for batch in first):
        return []
    return [str(each) for each in sorted(set(first[0].samples).intersection(*(batch.samples for batch in first[1:])))]


def _remedy(spike: SpikeFound) -> str | None:
    """Return the remedy of a spike whose batch is unknown, or whose gradient was clipped; None for that of the rule."""
    if spike.batches and spike.clipped_at is None:
        return None
    cause = "the samples of this batch" if spike.batches else "what this step was computed from"
    clip = "clip the gradient by its norm" if spike.clipped_at is None else "clip lower"
    return f"look at {cause}; {clip}, or leave out a step with such a loss"


def _needs(state: RunState) -> str | None:
    return None if state.loss.steps or state.gradient_norm.steps else "neither a loss nor a gradient norm was read"


RULE = Rule(
    "GT220",
    Level.WARNING,
    "the loss or the gradient norm spiked",
    "a step with such a gradient can undo what many steps have learned, and the reason is mostly in its batch",
    "look at the samples of this batch; clip the gradient by its norm, or leave out a step with such a loss",
    check,
    needs=_needs,
)
