"""Find spikes of the loss and of the gradient norm, and name the batch they came from. Runs on the training thread.

On the CPU a loss is compared as its backward begins, and a norm before the step that applies the gradients: the batch is the
newest one then. Numbers of a device arrive some steps later, with the place of the batch that was noted as their backward began
(checked on a simulated device only).

Values are comparable while the same optimizers step and no learning rate has jumped up. Of optimizers that take turns, as those
of a GAN do, no value is compared with any other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.gradients.spike_fence import SpikeFence
from gradtui.probe.steps import BACKWARD, STEP, BatchPlace, Epochs, ProbeContext
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import SpikeFound, SpikeSettled
from gradtui.protocol.spikes import SpikeMetric

_SHARE_OF_LOSS, _SHARE_OF_NORM = 0.5, 1.0
"""Shares of the usual value by which a spike is above it at least."""
_JUMP = 1.5
"""A learning rate that grows by this factor between two readings has jumped up."""
_SHORT_BUFFERS = 16
"""How many times in a run the buffer of steps is short, so that the first values of a fence come soon."""
_MAX, _EMITTED_EVERY = 100, 10
"""After this many spikes of a run, only every tenth is emitted."""


class SpikeDetector:
    """Receives the losses and norms of a run."""

    def __init__(self, context: ProbeContext) -> None:
        self.loss, self.norm = SpikeFence(_SHARE_OF_LOSS), SpikeFence(_SHARE_OF_NORM)
        self.epochs: Epochs | None = None
        self.pauses = False
        """Whether the run is to be paused at the next spike. Until then every step is measured."""
        self.is_replaying = False
        """Whether buffered steps are replayed, which have ended although they are not counted yet."""
        self.found: Callable[[SpikeFound], None] = lambda _: None
        """Called with each spike of the step that has not ended."""
        self.judge: Callable[[SpikeFound], None] | None = None
        """Called with each spike, also of a step that has ended."""
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._groups = context.models.groups
        self._rates: Sequence[float | None] = ()
        self._number = 0
        self._buffers = 0
        self._open: dict[SpikeMetric, int] = {}
        """The number of the newest spike, if no later value was usual."""
        self._spiked_at = 0
        """The newest step of which a spike was reported."""
        self._backwards = 0
        """The number of backwards since the newest step."""
        self._stepping: set[int] = set()
        """Indices of the optimizers that have stepped since the newest backward."""
        self._stepped: set[int] | None = None
        """Those that stepped between the two backwards before."""

    def steps_until_due(self) -> int:
        """Return how many steps may be buffered before their values are needed. Call it once for each buffer."""
        missing = max(self.loss.missing, self.norm.missing)
        if not missing or self._buffers >= _SHORT_BUFFERS:
            return sys.maxsize
        self._buffers += 1
        return missing

    @property
    def is_above(self) -> bool:
        """Whether the newest loss or the newest norm is that of a spike."""
        return self.loss.is_above or self.norm.is_above

    def on_loss(self, value: float) -> None:
        """Compare a loss on the CPU as its backward begins."""
        self._begin_backward()
        self._backwards += 1
        if self.loss.is_spike(value) and not self._rates_jumped():
            self._report("loss", value, self._counter.steps + 1, self._named(after_backward=False))
        self.loss.add(value)
        self._settle("loss", self._counter.steps + 1)

    def replay(self, values: Sequence[float], kinds: Sequence[int]) -> None:
        """Begin to take what was read in buffered steps: first their losses, among events of these kinds."""
        self.is_replaying = True
        self._on_buffered_losses(values, kinds)

    def _on_buffered_losses(self, values: Sequence[float], kinds: Sequence[int]) -> None:
        # They were compared when they were read.
        self._begin_backward()
        self.loss.extend(values)
        if values:
            self._settle("loss", self._counter.steps + 1)
        newest = kinds[::-1]
        ended = newest.index(-STEP) if -STEP in newest else len(newest)
        self._backwards = newest[:ended].count(-BACKWARD) + (self._backwards if ended == len(newest) else 0)

    def on_late_loss(self, value: float, step: int, batches: Sequence[BatchPlace]) -> None:
        """Compare the loss of a step that has arrived from a device."""
        if self.loss.is_spike(value) and not self._rates_jumped():
            self._report("loss", value, step, self._named_at(step, batches))
        self.loss.add(value)
        self._settle("loss", step)

    def on_norm(self, sample: GradNormSample) -> None:
        """Compare the norm of a step, before clipping where the script clips."""
        value = sample.total if sample.before_clipping is None else sample.before_clipping
        if value is None:
            return
        if not self.is_replaying and self.norm.is_spike(value) and not self._rates_jumped():
            self._report("norm", value, sample.step, self._named_at(sample.step, sample.batches), sample.clipped_at)
        (self.norm.take if self.is_replaying else self.norm.add)(value)
        self._settle("norm", sample.step)

    def replayed(self) -> None:
        """Take note that the values of buffered steps were all received."""
        self.is_replaying = False
        self.norm.renew()

    def returned(self) -> None:
        """Note that the run has returned to an earlier state: what follows is compared with the values before the spike."""
        self.loss.end_row()
        self.norm.end_row()

    def stepped(self, optimizer: int) -> None:
        """Note that an optimizer has stepped, by its index."""
        self._stepping.add(optimizer)
        self._backwards = 0
        if self._groups.rates is not self._rates:
            self._rates_jumped()

    def tree_changed(self) -> None:
        """Begin anew, since other models train, or others of their parameters."""
        self.loss.clear()
        self.norm.clear()
        self._open.clear()

    def _begin_backward(self) -> None:
        if not self._stepping:
            return
        if self._stepped not in (None, self._stepping):
            self.tree_changed()
        self._stepped, self._stepping = self._stepping, set()

    def _rates_jumped(self) -> bool:
        """Return whether a learning rate has jumped up since the last call. Begin anew then."""
        self._groups.look(self._counter.steps + 1)
        before, self._rates = self._rates, self._groups.rates
        jumped = any(old is not None and new is not None and new > _JUMP * old for old, new in zip(before, self._rates))
        if jumped:
            self.tree_changed()
        return jumped

    def _settle(self, metric: SpikeMetric, step: int) -> None:
        """Tell what followed the newest spike, once that is known. `step` is that of the newest value."""
        if metric not in self._open:
            return
        fence = self.loss if metric == "loss" else self.norm
        if not fence.is_above:
            number = self._open.pop(metric)
            self._emit(SpikeSettled(self._clock.at(), step, number, None if fence.begins_anew else step))

    def _named_at(self, step: int, batches: Sequence[BatchPlace]) -> tuple[NamedBatch, ...]:
        """Return the batches of a step after its backwards. `batches`: where they come from, if they are known."""
        if batches:
            return tuple(each.named() for each in batches)
        is_present = step == self._counter.steps + 1 and not self.is_replaying
        return self._named(after_backward=True) if is_present else ()

    def _named(self, *, after_backward: bool) -> tuple[NamedBatch, ...]:
        return self.epochs.named(after_backward=after_backward) if self.epochs is not None else ()

    def _report(
        self,
        metric: SpikeMetric,
        value: float,
        step: int,
        batches: tuple[NamedBatch, ...],
        clipped_at: float | None = None,
    ) -> None:
        if step == self._spiked_at:
            # A loss that is far too high mostly has such a gradient.
            return
        self._spiked_at = step
        self._number += 1
        fence = self.loss if metric == "loss" else self.norm
        spike = SpikeFound(
            self._clock.at(), step, self._number, metric, value, fence.usual, fence.limit, batches,
            max(1, self._backwards) if metric == "loss" else 1,
            clipped_at if clipped_at is not None and math.isfinite(clipped_at) else None,
        )  # fmt: skip
        if step == self._counter.steps + 1 and not self.is_replaying:
            self.found(spike)
        if self.judge is not None:
            self.judge(spike)
        if self._number <= _MAX or self._number % _EMITTED_EVERY == 0:
            self._open[metric] = self._number
            self._emit(spike)
