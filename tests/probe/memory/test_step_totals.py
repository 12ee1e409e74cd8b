"""The memory totals of every step, sampled or only buffered, and the steps whose peak stands out: with scripted totals."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import pytest
import torch
from helpers.examples import combinations
from helpers.watched import CountingAllocator, Watched, watched
from torch import nn

from gradtui.probe.gradients import buffered_readings
from gradtui.probe.memory import StepTotalsReader, step_totals
from gradtui.probe.runtime import ReadingInterval
from gradtui.probe.samplers.cpu_memory import Reading
from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.events import MemoryMeasured, MemorySpikeFound, StepMemoryMeasured, StepTotals
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.run_memory import run_peak

MIB = 1 << 20
STEPS = 80
BASE = 10 * MIB
"""Bytes between two steps."""
SPIKES = {26: (Phase.BACKWARD, 400 * MIB), 50: (Phase.FORWARD, 300 * MIB), 51: (Phase.FORWARD, 310 * MIB)}

Totals = tuple[int, int, int]


def usual(step: int) -> Totals:
    """The totals at the end of forward, backward and optimizer step: the batches vary a little."""
    return (100 + step % 3) * MIB, (90 + step % 2) * MIB, 20 * MIB


def with_spikes(step: int) -> Totals:
    forward, backward, optimizer = usual(step)
    phase, more = SPIKES.get(step, (None, 0))
    return (more if phase is Phase.FORWARD else forward), (more if phase is Phase.BACKWARD else backward), optimizer


class Model(nn.Module):
    """Holds so many bytes once its forward has run, and once its backward has."""

    def __init__(self, allocator: CountingAllocator, totals: Callable[[int], Totals]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.layer.weight.register_post_accumulate_grad_hook(lambda _: self.reaches(1))
        self.allocator, self.totals, self.number = allocator, totals, 1

    def reaches(self, phase: int) -> None:
        self.allocator.total = self.totals(self.number)[phase]

    def forward(self, x: torch.Tensor) -> Any:
        self.reaches(0)
        return self.layer(x)


def train(
    seen: Watched, allocator: CountingAllocator, totals: Callable[[int], Totals], steps: int, *, backwards: int = 1
) -> Model:
    model = Model(allocator, totals)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: model.reaches(2))
    for step in range(1, steps + 1):
        model.number = step
        optimizer.zero_grad()
        for _ in range(backwards):
            model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        allocator.total = BASE
        if step % 10 == 0 and seen.probe.buffer.thread:
            # As five times a second: only then the peaks of buffered steps are compared.
            seen.probe.buffer.flush(perf_counter_ns())
    return model


def expected(totals: Callable[[int], Totals], steps: int) -> list[StepTotals]:
    return [StepTotals(step, *totals(step), peak=max(totals(step))) for step in range(1, steps + 1)]


@pytest.fixture(params=[100.0, 0.0], ids=["sampled", "buffered"])
def budget(request: pytest.FixtureRequest) -> float:
    return float(request.param)


def only_buffered(seen: Watched) -> None:
    """No steps are sampled for the sake of the budget after the first ones."""
    seen.probe.step_sampler._cadence._warmup = 2


@pytest.mark.usefixtures("every_step_is_read")
def test_every_step_has_its_totals(budget: float) -> None:
    allocator = CountingAllocator()
    with watched(budget=budget, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, usual, STEPS)
        assert bool(seen.probe.buffer.thread) == (budget == 0)
    assert seen.memory_totals() == expected(usual, STEPS)
    assert seen.all(MemorySpikeFound) == []
    sampled = {event.step for event in seen.all(MemoryMeasured)}
    assert (len(sampled) > STEPS // 2) == (budget > 0)
    assert seen.state.step_memory.peak.values == [max(usual(step)) for step in range(1, STEPS + 1)]
    assert seen.state.step_memory.newest == seen.memory_totals()[-1]


@pytest.mark.usefixtures("every_step_is_read")
def test_of_several_backwards_the_highest_totals_count(budget: float) -> None:
    allocator = CountingAllocator()
    with watched(budget=budget, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, usual, 30, backwards=3)
    assert seen.memory_totals() == expected(usual, 30)


@pytest.mark.usefixtures("every_step_is_read")
def test_outstanding_steps_have_phase_and_trigger_sample(budget: float) -> None:
    allocator = CountingAllocator()
    with watched(budget=budget, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, with_spikes, STEPS)
    assert seen.memory_totals() == expected(with_spikes, STEPS)
    first, second = seen.all(MemorySpikeFound)
    assert (first.step, first.phase, first.peak, first.number, first.steps) == (26, Phase.BACKWARD, 400 * MIB, 1, 1)
    assert (second.step, second.phase, second.peak, second.number, second.steps) == (50, Phase.FORWARD, 310 * MIB, 2, 2)
    # The median of peaks that are 100, 101 and 102 MiB in turn.
    assert first.usual == second.usual == 101 * MIB
    sampled = {event.step for event in seen.all(MemoryMeasured) if event.step}
    # The second one is still going on at step 51, which has its breakdown then.
    assert {27, 51} <= sampled
    if budget == 0:
        assert {step for step in sampled if step > 10} <= {27, 51, 52}
    assert [entry.kind for entry in seen.state.log].count("spike") == 2
    assert seen.state.step_memory.spikes == [first, second]
    # A spike is told after the totals of its steps.
    for spike in (first, second):
        before = seen.events[: seen.events.index(spike)]
        told = [each.step for event in before if isinstance(event, StepMemoryMeasured) for each in event.totals]
        assert spike.step + spike.steps - 1 in told


@pytest.mark.usefixtures("every_step_is_read")
def test_spike_of_last_step_is_found_at_end(budget: float) -> None:
    allocator = CountingAllocator()
    with watched(budget=budget, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, with_spikes, 26)
    (spike,) = seen.all(MemorySpikeFound)
    assert (spike.step, spike.phase, spike.peak) == (26, Phase.BACKWARD, 400 * MIB)


@pytest.mark.usefixtures("every_step_is_read")
def test_finished_spike_is_told_before_change(budget: float) -> None:
    allocator = CountingAllocator()
    with watched(budget=budget, allocator=allocator) as seen:
        only_buffered(seen)
        model = train(seen, allocator, with_spikes, 35)
        seen.submit(lambda number: SetTrainable(number, "layer.bias", trainable=False))
        model(torch.ones(1, 3)).sum().backward()
    applied = next(index for index, event in enumerate(seen.events) if type(event).__name__ == "CommandApplied")
    spike = next(index for index, event in enumerate(seen.events) if isinstance(event, MemorySpikeFound))
    assert spike < applied
    told = [
        each.step for event in seen.events[:applied] if isinstance(event, StepMemoryMeasured) for each in event.totals
    ]
    assert told == [*range(1, 36)]


class WithPeaks(CountingAllocator):
    """An allocator that keeps the highest total since it was read last, as a CUDA allocator does."""

    def __init__(self) -> None:
        self.highest = 0
        super().__init__()

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        self._total, self.highest = total, max(self.highest, total)

    def read(self) -> Reading:
        highest, self.highest = self.highest, self._total
        return Reading(self._total, highest, since_last=True)


class Reaching(Model):
    """Needs some more bytes within each phase than at its end."""

    def __init__(self, allocator: CountingAllocator, totals: Callable[[int], Totals], within: int) -> None:
        super().__init__(allocator, totals)
        self.within = within

    def reaches(self, phase: int) -> None:
        self.allocator.total = self.totals(self.number)[phase] + self.within
        super().reaches(phase)


@pytest.mark.usefixtures("every_step_is_read")
def test_step_peak_of_allocator_is_exact() -> None:
    allocator = WithPeaks()
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        model = Reaching(allocator, usual, within=7 * MIB)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *_: model.reaches(2))
        for step in range(1, 41):
            model.number = step
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            allocator.total = BASE
    found = [each for each in seen.memory_totals() if each.step > 5]
    for each in found:
        forward, backward, optimizer = usual(each.step)
        # A phase begins with what the one before has left.
        peaks = forward + 7 * MIB, max(forward, backward + 7 * MIB), max(backward, optimizer + 7 * MIB)
        assert each == StepTotals(each.step, forward, backward, optimizer, max(peaks), True, *peaks)
    assert [each.step for each in found] == [*range(6, 41)]


@pytest.mark.parametrize("reached", [0, 1, 2], ids=["forward", "backward", "optimizer"])
def test_unread_step_has_peak_of_run(reached: int, set_reading_interval: Callable[[int], None]) -> None:
    """Step 302 needs 300 MiB more, and only every 4th step is read."""
    set_reading_interval(4)
    allocator = WithPeaks()
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        model = Reaching(allocator, usual, within=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *_: model.reaches(2))
        for step in range(1, 331):
            model.number = step
            optimizer.zero_grad()
            loss = model(torch.ones(1, 3)).sum()
            for phase, act in enumerate((lambda: None, loss.backward, optimizer.step)):
                if step == 302 and phase == reached:
                    allocator.total += 300 * MIB
                    allocator.total -= 300 * MIB
                act()
            allocator.total = BASE
    later = [each for each in seen.memory_totals() if each.step > 100]
    assert all(each.peak_exact for each in later)
    # Something else may make the probe read or sample a step.
    read = min(each.step for each in later if each.step >= 302)
    peak = run_peak(seen.state)
    assert (peak.whole // MIB, peak.bound == "exact") == ((usual(302)[max(0, reached - 1)] + 300 * MIB) // MIB, True)
    assert peak.since <= 302 <= peak.step == read
    assert (peak.phase is None) == (read > 302)


class OnTwoDevices(WithPeaks):
    """Two devices: the first holds `BASE` bytes, and the second all others."""

    def read(self) -> Reading:
        whole = super().read()
        now, highest = whole.total or 0, whole.peak or 0
        first, second = DeviceMemory(0, BASE, BASE), DeviceMemory(1, now - BASE, highest - BASE)
        return Reading(now, highest, True, (first, second))


def test_steps_have_peaks_of_each_device() -> None:
    allocator = OnTwoDevices()
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        model = Reaching(allocator, usual, within=7 * MIB)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *_: model.reaches(2))
        for step in range(1, 41):
            model.number = step
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            allocator.total = BASE
    steps = [each for each in seen.memory_totals() if each.step > 5]
    for each in steps:
        first, second = each.devices
        assert (first, second.total) == (DeviceMemory(0, BASE, BASE), usual(each.step)[-1] - BASE)
        assert (second.peak or 0) >= (each.peak or 0) - BASE
    assert max(each.devices[1].peak or 0 for each in steps) == max(each.peak or 0 for each in steps) - BASE
    for ledger in seen.all(MemoryMeasured):
        first, second = ledger.devices
        assert (first.total, second.total) == (BASE, (ledger.held.total or 0) - BASE)
        assert not ledger.peak_exact or second.peak == (ledger.peak or 0) - BASE


class Unknown(CountingAllocator):
    """A device whose totals nobody knows."""

    def read(self) -> Reading:
        return Reading(None, None)


def test_unknown_totals_are_none(budget: float) -> None:
    with watched(budget=budget, allocator=Unknown()) as seen:
        only_buffered(seen)
        train(seen, CountingAllocator(), usual, 20)
    assert seen.memory_totals() == []
    assert seen.state.step_memory.newest is None


def test_totals_are_read_at_their_interval(set_reading_interval: Callable[[int], None]) -> None:
    set_reading_interval(4)
    allocator = CountingAllocator()
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, usual, 40)
    sampled = {event.step for event in seen.all(MemoryMeasured) if event.step}
    read = [each.step for each in seen.memory_totals()]
    assert {*read} >= sampled
    later = [step for step in read if step > max(sampled)]
    assert later == [*range(later[0], 41, 4)]
    assert later[0] <= max(sampled) + 4
    of_each = {each.step: each for each in expected(usual, 40)}
    assert seen.memory_totals() == [of_each[step] for step in read]


READING_S = 1e-3


class Costly(CountingAllocator):
    """Each reading takes a millisecond of the clock in `costs`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0

    def read(self) -> Reading:
        self.now += round(READING_S * 1e9)
        return super().read()


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> tuple[Costly, list[float]]:
    """An allocator whose readings take time, and what was charged for each step, in seconds."""
    allocator, charged = Costly(), list[float]()
    for module in (step_totals, buffered_readings):
        monkeypatch.setattr(module, "thread_time_ns", lambda: allocator.now)

    charge = StepTotalsReader.charge

    def record(totals: StepTotalsReader) -> None:
        charged.extend([totals.spent_ns / 1e9] if totals.spent_ns else [])
        charge(totals)

    monkeypatch.setattr(StepTotalsReader, "charge", record)
    # However much they cost, all steps are read.
    monkeypatch.setattr(ReadingInterval, "every", 1)
    return allocator, charged


@pytest.mark.parametrize(("backwards", "is_buffered"), combinations([1, 3, 32], [True, False]))
def test_each_step_is_charged_all_of_its_readings(
    backwards: int, is_buffered: bool, costs: tuple[Costly, list[float]]
) -> None:
    allocator, charged = costs
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        train(seen, allocator, usual, 10, backwards=backwards)
        if not is_buffered:
            seen.probe.parts.steps_until_due = lambda: -1  # type: ignore[method-assign]
            seen.probe.buffer.flush(perf_counter_ns())
            seen.probe.buffer.steps_left = 0
        charged.clear()
        train(seen, allocator, usual, 20, backwards=backwards)
        assert bool(seen.probe.buffer.thread) == is_buffered
    # The steps of a new model are sampled at first, and a sample has readings of its own.
    assert len(charged) > 10
    assert charged == pytest.approx([READING_S * (2 * backwards + 1)] * len(charged))


def test_steps_without_optimizer_are_charged_for_their_readings(costs: tuple[Costly, list[float]]) -> None:
    allocator, charged = costs
    layer = nn.Linear(3, 2)
    with watched(budget=0.0, allocator=allocator) as seen:
        only_buffered(seen)
        for _ in range(30):
            layer(torch.ones(1, 3)).sum().backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
    assert len(charged) > 15
    assert charged == pytest.approx([READING_S * 2] * len(charged))


def test_failed_part_lets_steps_go_on() -> None:
    class Broken(CountingAllocator):
        def read(self) -> Reading:
            if self.total == usual(20)[0]:
                raise OSError
            return super().read()

    allocator = Broken()
    with watched(budget=0.0, allocator=allocator, may_fail=True) as seen:
        only_buffered(seen)
        train(seen, allocator, usual, 60)
    assert seen.state.step == 60
    assert [step for step, _ in seen.losses()] == [*range(1, 61)]


@pytest.mark.usefixtures("every_step_is_read")
@pytest.mark.parametrize("critics", [1, 3, 5])
def test_steps_are_compared_within_each_optimizer(critics: int) -> None:
    """The generator of a GAN needs three times the memory of its critic, and steps once after a few steps of that."""
    allocator = CountingAllocator()
    with watched(allocator=allocator, budget=0.0) as seen:
        critic, generator = nn.Linear(3, 1), nn.Linear(3, 1)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (critic, generator)]

        def step(which: int, total: int) -> None:
            optimizers[which].zero_grad()
            loss = (critic, generator)[which](torch.ones(1, 3)).sum()
            allocator.total = total
            loss.backward()
            optimizers[which].step()

        for number in range(1, 61):
            for _ in range(critics):
                step(0, 100 * MIB)
            step(1, 900 * MIB if number == 40 else 300 * MIB)
    spikes = seen.all(MemorySpikeFound)
    assert [(spike.step, spike.peak, spike.usual) for spike in spikes] == [(40 * (critics + 1), 900 * MIB, 300 * MIB)]
