"""How much is done for each step, counted: a regression shows here on the busiest machine.

Counted are the Python functions of ours that a step calls (`sys.setprofile`) and the operations that we ask of torch besides
the script's own (a dispatch mode, with the probe and without it), for the three kinds of step: one that is only marked, one
whose norms and memory totals are read, one that is examined. What is done every so many milliseconds is left out by taking the
least of several steps.

The limits are those figures as they were found on Python 3.11 with torch 2.13, of a step that is looked at plus about a tenth:
whoever makes a step dearer than that says so by changing them here. Reads of values are counted in `test_reads.py`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from helpers.calls import calls_of
from helpers.examples import nightly
from helpers.operations import CountedOperations
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe import parts
from gradtui.probe.gradients import buffered_readings, grad_norm_collector, step_loss
from gradtui.probe.model import state_tensors
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import overhead, reading_interval
from gradtui.probe.sampling import step_sampler
from gradtui.probe.steps import call_order, hook_buffer

ALWAYS = 10**9
KINDS = ("marked", "measured", "examined")
WARM_UP = 14
"""Steps until nothing new is seen of the model."""
STEPS = 3


@dataclass(frozen=True)
class Limit:
    """So many calls in any case, and so many for each parameter and for each call of a module."""

    calls: int
    a_parameter: float
    a_module: float

    def __call__(self, *, parameters: int, modules: int) -> float:
        return self.calls + self.a_parameter * parameters + self.a_module * modules


MAX_CALLS = {
    # Found: 5, and one for each call of a module; nothing for a parameter. The loss is read.
    "marked": Limit(5, 0, 1),
    # Found: 49 to 51, and one for each call of a module; nothing for a parameter. Norms and three memory totals are read.
    "measured": Limit(55, 0.01, 1),
    # Found: 6,346 for 100 parameters, and 27.5 for each further one, one call of a module for two parameters among them. Of the
    # 55 for such a call, 17 time it, forward and backward.
    "examined": Limit(3_350, 29.5, 1),
}


class Loop:
    """`layers` linear layers side by side, two parameters each, or one after the other."""

    def __init__(self, layers: int, *, deep: bool = False) -> None:
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.model: nn.Module = nn.Sequential(*self.layers) if deep else Wide(self.layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x = torch.ones(3, 4)

    def step(self) -> None:
        self.optimizer.zero_grad()
        # Bounded: a loss that diverges to NaN is looked at closely, and that is counted too.
        self.model(self.x).square().mean().backward()
        self.optimizer.step()


class Wide(nn.Module):
    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([layer(x) for layer in self.layers])


@contextmanager
def every_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    """A probe that does the same to every step from the sixth on."""
    monkeypatch.setattr(hook_buffer, "_FLUSH_NS", 10**15)
    # The first steps are compared with each other, however many of them are not buffered while this machine is busy.
    monkeypatch.setattr(call_order, "_COMPARED_STEPS", 2)
    for part in (buffered_readings, grad_norm_collector, step_loss, step_sampler):
        # Else nothing of ours is done where a mode would see it.
        monkeypatch.setattr(part, "operations_are_observed", lambda: False)
    monkeypatch.setattr(buffered_readings, "modes_are_active", lambda: False)
    # Every step is read, or none.
    monkeypatch.setattr(reading_interval, "_SHARE", 1e12)
    if kind == "marked":
        monkeypatch.setattr(reading_interval.ReadingInterval, "steps_until", lambda *_: ALWAYS)
    with watched(budget=0.0) as seen:
        probe = seen.probe
        # However long a step takes to examine here, every one of them is.
        monkeypatch.setattr("gradtui.probe.runtime.sampling_schedule._LONG_S", float("inf"))
        probe.step_sampler._cadence._warmup = 2
        if kind == "examined":
            probe.step_sampler._cadence.force(ALWAYS)
        yield probe


def step_calls(step: Callable[[], None]) -> int:
    """Return the calls of gradtui in a step. The wrapper of a module's call has the file name of torch's function."""
    return calls_of(step, nn.Module.__call__.__code__)  # type: ignore[attr-defined]  # a Python function


def operations_of(step: Callable[[], None]) -> int:
    """Operations that one step asks of torch."""
    with CountedOperations() as operations:
        step()
    return operations.counts.total()


def least(count: Callable[[Callable[[], None]], int], kind: str, loop: Loop, probe: Probe) -> int:
    """The least of several steps of this kind."""
    for _ in range(WARM_UP):
        loop.step()
    assert probe.buffer.marks_go_on == (kind != "examined")
    return min(count(loop.step) for _ in range(STEPS))


def least_calls(kind: str, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> int:
    """Python functions of ours that a step of this kind calls, at the least."""
    with every_step(kind, monkeypatch) as probe:
        return least(step_calls, kind, loop, probe)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_a_small_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(7, deep=True)
    assert least_calls(kind, loop, monkeypatch) <= MAX_CALLS[kind](parameters=14, modules=8)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_grow_linearly_with_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 100 parameters to 400, or nightly 1,000, two in each layer: a straight line, of this slope at most."""
    layers = nightly(200, 500)
    few, many = (least_calls(kind, Loop(count), monkeypatch) for count in (50, layers))
    limit = MAX_CALLS[kind]
    assert few <= limit(parameters=100, modules=51)
    assert many - few <= limit(parameters=2 * layers, modules=layers + 1) - limit(parameters=100, modules=51)


def test_many_marks_cost_as_much_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: 266 to 375 calls, and 415 for 1,000 parameters, whatever the number of steps.

    Hooks are timed every tenth time only.
    """
    monkeypatch.setattr(overhead, "_REPORTS_EACH", 10**9)
    monkeypatch.setattr(parts, "_ORDER_EACH", 10**9)
    monkeypatch.setattr(parts, "_TIMES_NS", 10**18)
    for layers, counts in ((7, (25, 100)), (500, (25,))):
        loop = Loop(layers)
        with every_step("marked", monkeypatch) as probe:
            for _ in range(WARM_UP):
                loop.step()
            marks = probe.buffer
            marks._drain()
            for count in counts:
                for _ in range(count):
                    loop.step()
                assert 0 < calls_of(marks._drain) <= 450


@pytest.mark.parametrize(("kind", "most"), [("marked", 1), ("measured", 4), ("examined", 545)])
def test_operations_do_not_grow_with_the_model(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found, for 100 parameters as for 1,000: 1 (the loss is read), 4 (norms, a stack, their values) and 491."""
    for layers in (50, nightly(200, 500)):
        loop = Loop(layers)
        alone = min(operations_of(loop.step) for _ in range(2))
        with every_step(kind, monkeypatch) as probe:
            ours = least(operations_of, kind, loop, probe) - alone
        assert 0 < ours <= most


def test_reading_many_norms_lets_the_collector_visit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each collection visits the objects of the whole process, in the middle of the script's step."""
    loop, within = Loop(500), 0
    with every_step("measured", monkeypatch) as probe:
        for _ in range(WARM_UP):
            loop.step()

        def collects(phase: str, _: object) -> None:
            nonlocal within
            # Whatever is new when the collector is enabled again, it visits once.
            within += phase == "start" and probe.hooks.running is not None

        gc.callbacks.append(collects)
        try:
            for _ in range(10):
                loop.step()
        finally:
            gc.callbacks.remove(collects)
    assert within <= 15


def test_optimizer_state_is_counted_without_tensor_calls() -> None:
    def entries(count: int) -> dict[int, dict[str, object]]:
        return {at: {"step": torch.zeros(()), "a": [torch.zeros(2), None], "b": 1} for at in range(count)}

    of_ten, of_thousand = entries(10), entries(1_000)
    assert len(state_tensors(of_ten, of_thousand)) == 2_020
    assert calls_of(lambda: state_tensors(of_ten)) == calls_of(lambda: state_tensors(of_thousand))
