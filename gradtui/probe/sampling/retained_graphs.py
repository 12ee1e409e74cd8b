"""Find graphs that backward retains for a second backward that never comes. Training thread, in the first sampled steps.

With `retain_graph=True` backward leaves what the graph has saved. As long as the loss lives, so does all of that. In a loop the
next loss replaces it, after the next forward.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import GraphRetained

_STEPS = 3
"""Such steps that are reported."""


class RetainedGraphs:
    """Looks whether the graph of a step's last backward is whole and alive when the next forward begins."""

    def __init__(self, context: ProbeContext) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._loss: weakref.ref[torch.Tensor] | None = None
        """What the last backward of the sampled step was called on, if it retained the graph."""
        self._bytes = self._steps = 0

    def on_backward(self, outputs: Sequence[object], saved_bytes: int, *, keeps_graph: bool) -> None:
        """Note a backward. What an earlier one has retained was for this one."""
        first = outputs[0] if outputs and keeps_graph and self._steps < _STEPS else None
        self._loss = weakref.ref(first) if isinstance(first, torch.Tensor) else None
        self._bytes = saved_bytes

    def on_gradient(self) -> None:
        """Handle `autograd.grad`: the graph may have been retained for it."""
        self._loss = None

    def next_step_begins(self) -> None:
        """Look whether the loss is alive, as the first forward of the next step begins."""
        loss, self._loss = self._loss, None
        if loss is not None and loss() is not None:
            self._steps += 1
            self._emit(GraphRetained(self._clock.at(), self._counter.steps, self._steps, self._bytes))
