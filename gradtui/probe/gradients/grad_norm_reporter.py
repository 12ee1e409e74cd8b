"""Emit measured norms, statistics and histograms of gradients as events. Runs on the training thread."""

from __future__ import annotations

import math
from dataclasses import replace

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.gradients.latest_norms import LatestNorms
from gradtui.probe.runtime import ProbeContext
from gradtui.protocol.events import GradientFiguresMeasured, GradientHistogramsMeasured, GradientsMeasured
from gradtui.protocol.histogram import GradientHistogram
from gradtui.protocol.vocabulary import GradientStats

_ROWS_NS = 100_000_000
"""Minimum nanoseconds between two events with per-parameter norms. The total is sent with every reading."""
_ALL_ROWS = 32
"""Number of readings at the start of a run that all include per-parameter norms."""


class GradNormReporter:
    """Emits an event for each reading of gradients. `latest` receives the norms of applied gradients."""

    def __init__(self, context: ProbeContext, latest: LatestNorms) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._latest = latest
        self._rows_at = 0
        self._readings = 0
        self._finite = True
        self._unsent: GradNormSample | None = None
        """The newest reading if its event has no per-parameter norms."""

    def norms(self, reading: GradNormSample) -> None:
        """Emit the norms that a step applied."""
        self._readings += 1
        self._latest.applied(reading)
        now = self._clock.now()
        was_finite, self._finite = self._finite, reading.total is None or math.isfinite(reading.total)
        broke = was_finite and not self._finite
        rows = steps = None
        if self._readings <= _ALL_ROWS or now - self._rows_at >= _ROWS_NS or broke:
            rows, steps = self._latest.rows(), self._latest.steps(reading.step)
            self._rows_at = now
        self._unsent = reading if rows is None else None
        clipping = reading.before_clipping, reading.clipped_at, reading.is_applied
        figures = reading.total, reading.loss, rows, *clipping, steps
        self._emit(GradientsMeasured(self._clock.at(), reading.step, *figures, listing=self._models.tree.listing))

    def catch_up(self) -> None:
        """Emit the per-parameter norms of the newest reading if they were held back."""
        if (last := self._unsent) is not None:
            self._unsent = None
            rows, steps = self._latest.rows(), self._latest.steps(last.step)
            event = GradientsMeasured(self._clock.at(), last.step, None, None, rows, norm_steps=steps)
            self._emit(replace(event, listing=self._models.tree.listing))

    def statistics(self, step: int, figures: tuple[GradientStats, ...]) -> None:
        """Emit the statistics of some gradients."""
        self._emit(GradientFiguresMeasured(self._clock.at(), step, figures, listing=self._models.tree.listing))

    def histograms(self, step: int, histograms: tuple[GradientHistogram, ...]) -> None:
        """Emit the histograms of the watched gradients."""
        self._emit(GradientHistogramsMeasured(self._clock.at(), step, histograms, listing=self._models.tree.listing))
