"""Measure more of gradients than their norms: statistics in sampled steps, and histograms of those that the user watches.

Runs on the training thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.optim import Optimizer

from gradtui.probe.gradients.applied_parameters import AppliedParameters
from gradtui.probe.gradients.grad_histograms import GradHistograms
from gradtui.probe.gradients.grad_stats import GradStats
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import Event, GradientFiguresMeasured, GradientHistogramsMeasured


class GradFigures:
    """Statistics and histograms of the gradients that a step applies."""

    def __init__(self, context: ProbeContext, applied: AppliedParameters) -> None:
        self._emit, self._clock, self._models = context.emit, context.clock, context.models
        self._hooks, self._applied = context.hooks, applied
        self._statistics = GradStats(partial(self._deliver, GradientFiguresMeasured))
        self._histograms = GradHistograms(partial(self._deliver, GradientHistogramsMeasured))

    @property
    def is_requested(self) -> bool:
        """Whether the user has begun to watch parameters and waits for a first histogram."""
        return self._histograms.is_requested

    @property
    def is_open(self) -> bool:
        """Whether statistics of the current step are waiting for its end."""
        return self._statistics.is_open

    @property
    def dropped(self) -> int:
        """Number of steps not measured because a device was busy with earlier readings."""
        return self._statistics.dropped + self._histograms.dropped

    def watch(self, paths: tuple[str, ...]) -> None:
        """Collect histograms of these parameters from the next step on."""
        self._histograms.watch(paths, self._models.round_length)

    def before_step(
        self, step: int, optimizer: Optimizer | None, scale: torch.Tensor | None, *, has_run: bool, is_sampled: bool
    ) -> None:
        """Measure the gradients of `step`, which `optimizer` is about to apply or (`has_run`) has applied.

        In a step that is not sampled only the watched parameters are measured. `scale` is a loss scaler's factor that is still
        in the gradients.
        """
        watched = self._histograms.indices(self._models.tree)
        applied = self._applied.of(optimizer)
        known = [each for each in applied if each[0] >= 0 and (is_sampled or each[0] in watched)]
        with self._hooks.guarded("gradient figures"):
            self._statistics.before_step(step, known, scale, has_run, watched)
        with self._hooks.guarded("gradient histograms"):
            self._histograms.before_step(step, known, scale)

    def after_step(self) -> None:
        """Complete the statistics after the step, whether it was executed or skipped."""
        with self._hooks.guarded("gradient figures"):
            self._statistics.after_step()

    def poll(self) -> None:
        """Deliver what a device has finished. Never waits."""
        for name, part in (("gradient figures", self._statistics), ("gradient histograms", self._histograms)):
            if part.under_way:
                with self._hooks.guarded(name):
                    part.poll()

    def tree_changed(self) -> None:
        """Discard everything under way: parameters have new indices."""
        self._statistics.tree_changed()
        self._histograms.tree_changed()

    def _deliver(self, event: Callable[..., Event], step: int, figures: tuple[object, ...]) -> None:
        self._emit(event(self._clock.at(), step, figures, listing=self._models.tree.listing))
