"""Which gradients are measured when, and what is told of them: the meter's schedule."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from gradtui.probe.cadence import Cadence
from gradtui.probe.gradient_meter import GradientMeter, NormReading
from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.run_clock import RunClock
from gradtui.probe.torch_private import dispatch_modes_active, loss_scale
from gradtui.protocol.events import Event, GradientsMeasured

_ROWS_NS = 100_000_000
"""Norms of single parameters are sent at most this often; the total is sent with every reading."""
_ALL_ROWS = 32
"""They are all sent for this many readings at the start of a run."""


class NormReader:
    """Measures the gradients that an optimizer applies."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, view: ModelsInView, budget: float) -> None:
        self.latest: dict[int, float] = {}
        """Parameter index -> the norm read last."""
        self._emit = emit
        self._clock = clock
        self._view = view
        self._meter = GradientMeter(self._deliver)
        self._cadence = Cadence(budget)
        self._loss: torch.Tensor | None = None
        self._scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._rows_at = 0
        self._readings = 0
        self._unsent: NormReading | None = None

    @property
    def every(self) -> int:
        """Norms are measured every so many steps."""
        return self._cadence.every

    @property
    def is_scaled(self) -> bool:
        """Whether the script has an enabled GradScaler."""
        return any(scaler.is_enabled() for scaler in self._scalers)

    def saw_scaler(self, scaler: Any) -> None:
        """A GradScaler was made; losses are shown without its factor."""
        self._scalers.add(scaler)

    def saw_loss(self, step: int, outputs: Any) -> None:
        """Backward is called on this for `step`; kept without its graph until the gradients are measured."""
        self._loss = None
        if not self._cadence.is_due(step, self._view.round_length):
            return
        first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
        if not isinstance(first, torch.Tensor) or first.numel() != 1:
            return
        loss = first.detach()
        for scaler in self._scalers:
            scale = loss_scale(scaler)
            if scale is not None and scaler.is_enabled() and scale.device == loss.device:
                loss = loss / scale
        self._loss = loss

    def stepped(self, seconds: float) -> None:
        """A step took this long."""
        self._cadence.stepped(seconds)
        self._loss = None
        self._meter.poll()

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self.latest.clear()
        self._unsent = None

    def measure(self, step: int, optimizer: Optimizer) -> None:
        """Measure the gradients that `optimizer` is applying as its contribution to `step`, if it is time to."""
        if not self._cadence.is_due(step, self._view.round_length) or dispatch_modes_active():
            return
        began = self._clock.now()
        gradients = self._gradients(optimizer)
        scale = getattr(optimizer, "grad_scale", None)
        self._meter.measure(step, gradients, self._loss, scale if isinstance(scale, torch.Tensor) else None)
        self._cadence.spent((self._clock.now() - began) / 1e9)

    def _gradients(self, optimizer: Optimizer) -> list[tuple[int, torch.Tensor]]:
        places = self._view.tree.parameter_index
        return [
            (places.get(id(parameter), -1), gradient)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if (gradient := parameter.grad) is not None and gradient.numel()
        ]

    def _deliver(self, reading: NormReading) -> None:
        self._readings += 1
        for index, norm in reading.norms:
            self.latest[index] = norm
        now = self._clock.now()
        rows = None
        if self._readings <= _ALL_ROWS or now - self._rows_at >= _ROWS_NS:
            rows = self._rows(reading)
            self._rows_at = now
        self._unsent = reading if rows is None else None
        self._emit(GradientsMeasured(self._clock.at(), reading.step, reading.total, reading.loss, rows))

    def _rows(self, reading: NormReading) -> tuple[float | None, ...]:
        rows: list[float | None] = [None] * len(self._view.tree.parameters)
        for index, norm in reading.norms:
            if 0 <= index < len(rows):
                rows[index] = norm
        return tuple(rows)

    def finish(self) -> None:
        """Send what is still on its way, and the last rows if they were held back."""
        self._meter.finish()
        last = self._unsent
        if last is not None:
            self._emit(GradientsMeasured(self._clock.at(), last.step, None, None, self._rows(last)))
