"""Keep the newest gradient norm of each listed parameter and the step it belongs to, and emit them. Training thread."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.model import IndexMapping, optimizer_membership
from gradtui.probe.runtime import ProbeContext
from gradtui.protocol.events import GradientsMeasured

ROWS_NS = 100_000_000
"""Minimum nanoseconds between two events with per-parameter norms. The total is sent with every sample."""
_ALL_ROWS = 32
"""Number of samples at the start of a run that all include per-parameter norms."""


class LatestNorms:
    """Gradient norms by parameter index. On a device they lag by one sample."""

    def __init__(self, context: ProbeContext) -> None:
        self.by_index: dict[int, float] = {}
        """Parameter index -> norm when its optimizer last applied it. Index -1 stands for parameters of no listed model."""
        self._read_at: dict[int, int] = {}
        """Parameter index -> step of its norm."""
        self.receiver: Callable[[GradNormSample], None] | None = None
        """Called with each sample, for breakpoints. While it is set, every step is measured."""
        self.rows_every: Callable[[], int] | None = None
        """Returns the interval, in steps, of the events with per-parameter norms, if other ranks emit theirs at the same steps.
        None: time alone decides."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._rows_at = 0
        self._samples = 0
        self._was_finite = True
        self._unsent_step: int | None = None
        """The step of the newest sample if its event has no per-parameter norms."""

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. The norms of parameters that were listed before remain known."""
        self.by_index = moved.of_parameters(self.by_index)
        self._read_at = moved.of_parameters(self._read_at)

    def applied(self, sample: GradNormSample) -> None:
        """Store and emit the norms of gradients that a step applied."""
        self.by_index.update(sample.norms)
        self._read_at |= dict.fromkeys([index for index, _ in sample.norms], sample.step)
        self._samples += 1
        if self.receiver is not None:
            self.receiver(sample)
        now = self._clock.now()
        is_finite = sample.total is None or math.isfinite(sample.total)
        is_late = now - self._rows_at >= ROWS_NS if self.rows_every is None else sample.step % self.rows_every() == 0
        is_due = self._samples <= _ALL_ROWS or is_late
        has_rows = is_due or (self._was_finite and not is_finite)
        self._was_finite = is_finite
        if has_rows:
            self._rows_at = now
        self._unsent_step = None if has_rows else sample.step
        self._emit(
            GradientsMeasured(
                self._clock.at(),
                sample.step,
                sample.total,
                sample.loss,
                self._rows() if has_rows else None,
                sample.before_clipping,
                sample.clipped_at,
                sample.is_applied,
                self._steps(sample.step) if has_rows else None,
                listing=self._view.tree.listing,
            )
        )

    def catch_up(self) -> None:
        """Emit the per-parameter norms of the newest sample if they were held back."""
        if (step := self._unsent_step) is not None:
            self._unsent_step = None
            rows, steps = self._rows(), self._steps(step)
            listing = self._view.tree.listing
            self._emit(GradientsMeasured(self._clock.at(), step, None, None, rows, norm_steps=steps, listing=listing))

    def forget(self, index: int) -> None:
        """Remove the norm of a parameter that no longer has a gradient."""
        self.by_index.pop(index, None)

    def forget_frozen(self) -> None:
        """Remove the norms of parameters that are frozen now and belong to no optimizer: they are from an earlier stage.

        If an optimizer owns the parameter, its next step shows whether there is a gradient.
        """
        references = self._view.tree.parameter_refs
        frozen = {
            id(tensor): index
            for index in self.by_index
            if index >= 0 and (tensor := references[index]()) is not None and not tensor.requires_grad
        }
        if frozen:
            owned = optimizer_membership.owners(self._view.live_optimizers())
            for index in [index for key, index in frozen.items() if key not in owned]:
                del self.by_index[index]

    def _rows(self) -> tuple[float | None, ...]:
        """Return the norms of all parameters. Parameters of other optimizers keep the norm of their own last step."""
        return tuple(map(self.by_index.get, range(len(self._view.tree.parameters))))

    def _steps(self, step: int) -> tuple[int | None, ...] | None:
        """Return the step of each norm in `_rows`; None if all belong to `step`."""
        if set(map(self._read_at.get, self.by_index)) <= {step}:
            return None
        indices = range(len(self._view.tree.parameters))
        return tuple([self._read_at.get(index) if index in self.by_index else None for index in indices])
