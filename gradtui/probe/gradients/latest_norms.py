"""Keep the newest gradient norm of each listed parameter and the step it belongs to, and emit what was measured of each step.

`flush` runs several times a second, and emits the figures of all steps since the last call together. Training thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.model import IndexMapping, optimizer_membership
from gradtui.probe.runtime import power_of_two
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import GradientsMeasured, StepFigures, StepLosses, StepsMeasured

_ROWS_NS = 20_000_000
"""Minimum nanoseconds between two events with the norms of all parameters."""
_NORM_NS = 50_000
"""Minimum nanoseconds between two such events for each parameter, so that a viewer gets at most 20,000 norms a second."""
_ROWS_OF_RANKS_S = 0.1
"""With several ranks, about the seconds between two such events."""
_ALL_ROWS = 32
"""Number of samples at the start of a run that all include the norms of all parameters."""
_ROWS_AFTER_LOSS, _MAX_LOSSES = 8, 8
"""Number of samples that do so after a parameter has lost its gradient, and how many times in a run."""
_MAX_WAITING = 4096
"""Figures that wait to be emitted; of more the oldest are dropped."""


@dataclass(frozen=True)
class _Rows:
    """The norms of all parameters at one step."""

    norms: tuple[float | None, ...]
    steps: tuple[int | None, ...] | None
    listing: int | None


class LatestNorms:
    """Gradient norms by parameter index. On a device they lag by one sample."""

    def __init__(self, context: ProbeContext) -> None:
        self._by_index: dict[int, float] = {}
        self._read_at: dict[int, int] = {}
        """Parameter index -> step of its norm."""
        self._newest: list[GradNormSample] = []
        """The newest sample of each optimizer that is not in these two yet."""
        self.receiver: Callable[[GradNormSample], None] | None = None
        """Called with each sample, for breakpoints. While it is set, every step is measured."""
        self.judge: Callable[[GradNormSample], None] | None = None
        """The same for return policies. It also receives losses that arrive alone."""
        self.has_other_ranks = False
        """Whether other ranks emit their per-parameter norms, at the same steps. Otherwise time alone decides."""
        self._step_time = context.norms_interval.step_time
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self.dropped = 0
        """Number of figures that were not emitted in time."""
        self._waiting: deque[tuple[StepFigures, _Rows | None]] = deque()
        self._losses: tuple[StepLosses, ...] = ()
        """Losses of steps whose figures follow."""
        self.on_loss: Callable[[], None] = lambda: None
        """Called when parameters that had a gradient have none, the first few times in a run."""
        self._absent: dict[int, list[int]] = {}
        """Optimizer -> its parameters without a gradient in its newest sample."""
        self._losses_seen = 0
        self._rows_at = 0
        self._rows_left = _ALL_ROWS
        """Number of next samples that all include the norms of all parameters."""
        self._was_finite = True
        self._has_newest_rows = True
        """Whether the newest sample is emitted with the norms of all parameters."""

    @property
    def by_index(self) -> dict[int, float]:
        """Parameter index -> norm when its optimizer last applied it. Index -1 stands for parameters of no listed model."""
        if self._newest:
            newest, self._newest = self._newest, []
            for sample in newest:
                _replace(self._by_index, sample)
                self._read_at.update(dict.fromkeys([index for index, _ in sample.norms], sample.step))
        return self._by_index

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. The norms of parameters that were listed before remain known."""
        by_index = self.by_index
        self.flush()
        self._by_index = moved.of_parameters(by_index)
        self._read_at = moved.of_parameters(self._read_at)

    def backward_norms(self, sample: GradNormSample) -> None:
        """Store the norms of gradients as backward left them; the script may change them before it applies them."""
        _replace(self.by_index, sample)

    def applied(self, sample: GradNormSample) -> None:
        """Store the norms of gradients that a step applied. Parameters without a gradient lose their norm."""
        if [*sample.absent] != self._absent.get(sample.optimizer, []):
            self._absent_changed(sample)
        self._newest = [each for each in self._newest if each.optimizer != sample.optimizer]
        self._newest.append(sample)
        if self.receiver is not None:
            self.receiver(sample)
        if self.judge is not None:
            self.judge(sample)
        is_finite = sample.total is None or math.isfinite(sample.total)
        has_rows = self._are_rows_due(sample.step) or (self._was_finite and not is_finite)
        self._was_finite, self._has_newest_rows = is_finite, has_rows
        self._wait(_figures(sample), self._rows(sample.step) if has_rows else None)

    def _absent_changed(self, sample: GradNormSample) -> None:
        self._absent[sample.optimizer] = [*sample.absent]
        if self._losses_seen < _MAX_LOSSES and not self.by_index.keys().isdisjoint(sample.absent):
            self._losses_seen += 1
            self._rows_left = max(self._rows_left, _ROWS_AFTER_LOSS)
            self.on_loss()

    def loss(self, step: int, optimizer: int, loss: float, of: str) -> None:
        """Store the loss of a step whose norms are not measured, or have not arrived."""
        if self.judge is not None:
            self.judge(GradNormSample(step, None, loss, []))
        if self._losses:
            # Losses are emitted in the order of their steps.
            self.flush()
        self._wait(StepFigures(step, optimizer, loss, of))

    def losses(self, optimizer: int, first_step: int, losses: Sequence[float]) -> None:
        """Store the losses of consecutive steps. The samples of these steps come later, without a loss."""
        self.flush()
        self._losses = (StepLosses(optimizer, tuple(range(first_step, first_step + len(losses))), tuple(losses)),)

    def _wait(self, figures: StepFigures, rows: _Rows | None = None) -> None:
        self._waiting.append((figures, rows))
        if len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1

    def flush(self) -> None:
        """Emit what has been stored since the last call, in its order."""
        together: list[StepFigures] = []
        while self._waiting:
            figures, rows = self._waiting.popleft()
            if rows is None:
                together.append(figures)
                continue
            self._emit_together(together)
            together = []
            self._emit(
                GradientsMeasured(
                    self._clock.at(), figures.step, figures.total, figures.loss, rows.norms, figures.before_clipping,
                    figures.clipped_at, figures.as_applied, rows.steps, figures.optimizer, figures.loss_of,
                    listing=rows.listing,
                )
            )  # fmt: skip
        self._emit_together(together)

    def _emit_together(self, figures: list[StepFigures]) -> None:
        if figures or self._losses:
            losses, self._losses = self._losses, ()
            step = max([each.steps[-1] for each in losses] + [each.step for each in figures[-1:]])
            self._emit(StepsMeasured(self._clock.at(), step, tuple(figures), losses))

    def catch_up(self) -> None:
        """Emit everything, with the norms of all parameters at the newest step."""
        if not self._has_newest_rows and self._read_at_newest:
            self._has_newest_rows = True
            step = self._read_at_newest
            rows = self._rows(step)
            self.flush()
            self._emit(
                GradientsMeasured(
                    self._clock.at(), step, None, None, rows.norms, norm_steps=rows.steps, listing=rows.listing
                )
            )
        self.flush()

    @property
    def _read_at_newest(self) -> int:
        return self._newest[-1].step if self._newest else max(self._read_at.values(), default=0)

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

    def _are_rows_due(self, step: int) -> bool:
        now = self._clock.now()
        if self.has_other_ranks:
            is_due = step % power_of_two(_ROWS_OF_RANKS_S / max(self._step_time.typical, 1e-5)) == 0
        else:
            is_due = now - self._rows_at >= max(_ROWS_NS, _NORM_NS * len(self._view.tree.parameters))
        if is_due or self._rows_left > 0:
            self._rows_at = now
            self._rows_left -= 1
            return True
        return False

    def _rows(self, step: int) -> _Rows:
        """Return the norms of all parameters. Parameters of other optimizers keep the norm of their own last step."""
        by_index, indices = self.by_index, range(len(self._view.tree.parameters))
        norms = tuple(map(by_index.get, indices))
        # None where all are of `step`.
        steps = None
        if not set(map(self._read_at.get, by_index)) <= {step}:
            steps = tuple([self._read_at.get(index) if index in by_index else None for index in indices])
        return _Rows(norms, steps, self._view.tree.listing)


def _replace(by_index: dict[int, float], sample: GradNormSample) -> None:
    for index in sample.absent:
        by_index.pop(index, None)
    by_index.update(sample.norms)


def _figures(sample: GradNormSample) -> StepFigures:
    return StepFigures(
        sample.step, sample.optimizer, sample.loss, sample.loss_of, sample.total, sample.before_clipping,
        sample.clipped_at, sample.is_applied,
    )  # fmt: skip
