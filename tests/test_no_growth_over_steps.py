"""The ten thousandth step costs what the thousandth does: function calls and objects are counted, no time is measured.

What happens every so many milliseconds is made to happen every so many steps, so that equal stretches of steps do equal work.
"""

from __future__ import annotations

import gc

import pytest
import torch
from helpers.calls import calls_of
from helpers.training import square_step
from helpers.watched import CountingAllocator
from torch import nn

from gradtui.probe import parts
from gradtui.probe.gradients import latest_norms
from gradtui.probe.hooks import install
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions, overhead, sampling_schedule
from gradtui.probe.runtime.reading_interval import ReadingInterval
from gradtui.probe.sampling import step_sampler
from gradtui.probe.steps import hook_buffer, step_counter
from gradtui.protocol.events import Event
from gradtui.run.diagnostics import FindingTracker
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.viewing import view
from gradtui.transport.in_process import CommandQueue, EventQueue

EACH = 50
"""Steps that are replayed and reported together."""
STRETCH = 4 * EACH
STRETCHES = 3
FIRST, LAST = 350, 3_500
MAX_GROWN = 300
"""Objects: there are some of each step only as long as what keeps them is not full."""


class Run:
    """A tiny loop under a probe, and a viewer that applies its events."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.queue, self.state, self.findings = EventQueue(), RunState(), FindingTracker()
        self.probe = Probe(self.queue.put, CountingAllocator(), ProbeOptions(CommandQueue(), budget=0.0))
        self._model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._x = torch.ones(2, 4)
        self.steps = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            square_step(self._model, self._optimizer, self._x)
            self.steps += 1
            if self.steps % EACH == 0:
                self.probe.buffer._drain()

    def apply(self, events: list[Event]) -> None:
        for event in events:
            view(self.state, self.findings, event, "test")

    def stretch(self) -> tuple[int, int]:
        """Calls of the training thread and of the viewer for `STRETCH` steps."""
        training = calls_of(lambda: self.train(STRETCH))
        events = self.queue.drain(10**6)
        return training, calls_of(lambda: self.apply(events))

    def reach(self, step: int) -> None:
        while self.steps < step:
            self.train(EACH)
            self.apply(self.queue.drain(10**6))


def test_steps_cost_same_after_ten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_buffer, "_FLUSH_NS", 10**15)
    monkeypatch.setattr(hook_buffer, "_FLUSH_WITHIN_NS", 10**15)
    monkeypatch.setattr(step_counter, "FLUSH_NS", 0)
    monkeypatch.setattr(latest_norms, "_ROWS_NS", 0)
    monkeypatch.setattr(latest_norms, "_NORM_NS", 0)
    monkeypatch.setattr(step_sampler, "_BETWEEN_SWITCHES", 0)
    monkeypatch.setattr(sampling_schedule, "_MAX_INTERVAL_S", 0.0)
    monkeypatch.setattr(parts, "_ORDER_EACH", 1)
    monkeypatch.setattr(overhead, "_REPORTS_EACH", 10**9)
    monkeypatch.setattr(ReadingInterval, "every", 1)
    run = Run()
    install(run.probe)
    try:
        run.reach(FIRST)
        early = [run.stretch() for _ in range(STRETCHES)]
        objects = len(gc.get_objects())
        run.reach(LAST)
        late = [run.stretch() for _ in range(STRETCHES)]
        grown = len(gc.get_objects()) - objects
    finally:
        run.probe.detach()
    # A stretch in which a step is sampled has more calls.
    assert min(training for training, _ in late) == min(training for training, _ in early)
    viewing = [sum(viewing for _, viewing in stretches) for stretches in (early, late)]
    # Once the curves are full, points of theirs are merged.
    assert viewing[1] <= 2 * viewing[0]
    assert grown < MAX_GROWN


def test_full_curve_point_costs_same_later() -> None:
    curve = Series(64)

    def reach(steps: int) -> None:
        for step in range(curve.steps[-1] + 1 if curve.steps else 0, steps):
            curve.append(step, float(step % 7))

    reach(6_400)
    early = calls_of(lambda: reach(12_800))
    reach(64_000)
    assert calls_of(lambda: reach(70_400)) <= early
