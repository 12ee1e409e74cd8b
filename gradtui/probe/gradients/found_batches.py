"""Keep track of the batch of the newest NaN or spike, and of the present one, without keeping either alive. Training thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.nonfinite import NonFiniteDetector
from gradtui.probe.gradients.spikes import SpikeDetector
from gradtui.probe.memory import BatchContents
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.probe.torch_private.random_states import saved_random_states
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import NonFiniteFound, SpikeFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.bad_steps import loss_spike_text

_SAMPLES = 4_096
"""Maximum number of samples that a file names."""


@dataclass(frozen=True)
class FoundBatch:
    """A batch, and the random states before it was used."""

    step: int
    found: str
    """What was found in that step, in words; empty for the present batch."""
    places: tuple[NamedBatch, ...]
    contents: BatchContents
    random: Mapping[str, Any] | None
    """None where the script would see them read."""
    random_at: str
    """When that was, in words."""


class FoundBatches:
    """Knows the batches that a user may ask for."""

    def __init__(
        self, context: ProbeContext, bad_steps: NonFiniteDetector, spikes: SpikeDetector, epochs: Epochs
    ) -> None:
        self._counter, self._storages, self._epochs = context.counter, bad_steps.batches, epochs
        self._bad_steps, self._spikes = bad_steps, spikes
        bad_steps.found, spikes.found = self._not_finite, self._spiked
        self.spiked: Callable[[SpikeFound], None] = lambda _: None
        """Called with each spike of the step that has not ended."""
        self.newest: FoundBatch | None = None
        """That of the newest NaN or spike whose batch was known."""

    @property
    def are_recorded(self) -> bool:
        """Whether the batch of every step is recorded, since the run is to be paused at a bad one."""
        return self._bad_steps.pauses or self._spikes.pauses

    def _not_finite(self, found: NonFiniteFound, words: str) -> None:
        self._note(found.step, words, after_backward=found.phase is Phase.BACKWARD)

    def _spiked(self, spike: SpikeFound) -> None:
        self._note(spike.step, loss_spike_text(spike), after_backward=spike.metric == "norm")
        self.spiked(spike)

    def _note(self, step: int, words: str, *, after_backward: bool) -> None:
        moment = f"before the optimizer step {step:,}" if after_backward else f"as a backward of step {step:,} began"
        self.newest = self._of_present(words, moment, after_backward=after_backward)

    def present(self) -> FoundBatch:
        """Return the batch of the step that has not ended, or that is to begin."""
        return self._of_present("", "when this file was written", after_backward=False)

    def _of_present(self, words: str, moment: str, *, after_backward: bool) -> FoundBatch:
        contents, steps = self._storages.contents, self._counter.steps
        if contents.steps != steps:
            # It is that of an earlier step: this one was not recorded.
            contents = BatchContents(steps=steps)
        # What comes after this moment is not of it.
        contents = replace(contents, loaded=[*contents.loaded], calls=[*contents.calls])
        places = self._epochs.named(after_backward=after_backward, samples=_SAMPLES)
        random, at = contents.random, f"as the forward of step {steps + 1:,} began"
        if random is None:
            random, at = None if operations_are_observed() else saved_random_states(), moment
        return FoundBatch(steps + 1, words, places, contents, random, at)
