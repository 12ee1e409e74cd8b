"""Device time of phases and of our own operations, with a stand-in for the device whose clock the script moves on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.fake_cuda_graphs import FakeCuda
from helpers.watched import UNLIMITED, ScriptedCommands, Watched, watched
from torch import nn

from gradtui.probe.gradients import grad_norms
from gradtui.probe.runtime import sampling_schedule
from gradtui.probe.steps import device_times
from gradtui.protocol.commands import Pause, Resume
from gradtui.protocol.events import DeviceTimesMeasured, Progress
from gradtui.protocol.vocabulary import Phase

FORWARD, BACKWARD, OPTIMIZER, DATA, OWN = 3.0, 5.0, 7.0, 11.0, 17.0
"""Milliseconds on the device."""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, as_on_a_device: None) -> FakeCuda:
    return FakeCuda(monkeypatch)


class Model(nn.Module):
    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.weight.register_hook(lambda gradient: self.takes(BACKWARD))
        self.cuda_clock = cuda

    def takes(self, milliseconds: float) -> None:
        self.cuda_clock.clock_ms += milliseconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.takes(FORWARD)
        return self.weight * x


class Descent(torch.optim.SGD):
    cuda: FakeCuda

    def step(self, closure: Any = None) -> None:
        self.cuda.clock_ms += OPTIMIZER
        super().step()


class Training:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.model = Model(cuda)
        self.optimizer = Descent(self.model.parameters(), lr=0.1)
        self.optimizer.cuda = cuda

    def step(self) -> None:
        self.model(torch.ones(3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.cuda.clock_ms += DATA


def on_cuda(seen: Watched) -> None:
    """Have the models counted as being on a device."""
    ledger = seen.probe.step_sampler._memory.accountant
    ledger.devices = (torch.device("cuda", 0),)
    ledger.follow = lambda tree: None  # type: ignore[method-assign]


def own_operations_take(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: Callable[..., Any] = grad_norms._norms

    def slow(*gradients: Any) -> Any:
        cuda.clock_ms += OWN
        return norms(*gradients)

    monkeypatch.setattr(grad_norms, "_norms", slow)


def test_phases_of_examined_steps_are_timed_on_device(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    own_operations_take(cuda, monkeypatch)
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        for _ in range(3):
            training.step()
    first, second, *_ = seen.all(DeviceTimesMeasured)
    assert (first.step, second.step) == (1, 2)
    assert {Phase.FORWARD, Phase.BACKWARD} <= dict(first.phases).keys()
    assert Phase.LOAD not in dict(first.phases), "most of it was before the first step"
    milliseconds = {phase: 1e3 * seconds for phase, seconds in second.phases}
    expected = {Phase.FORWARD: FORWARD, Phase.BACKWARD: BACKWARD, Phase.OPTIMIZER: OPTIMIZER, Phase.DATA: DATA}
    assert {phase: took for phase, took in milliseconds.items() if took} == pytest.approx(expected)
    assert second.own == pytest.approx(OWN / 1e3)


def test_nothing_is_timed_on_the_host(cuda: FakeCuda) -> None:
    with watched() as seen:
        training = Training(cuda)
        for _ in range(3):
            training.step()
    assert not seen.all(DeviceTimesMeasured)
    assert cuda.events == 0
    assert seen.state.cost.own_device_seconds is None


def test_times_are_read_later_without_waiting(cuda: FakeCuda) -> None:
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        cuda.is_finished = False
        for _ in range(3):
            training.step()
        assert not seen.all(DeviceTimesMeasured)
        cuda.is_finished = True
        training.step()
        training.step()
        assert [event.step for event in seen.all(DeviceTimesMeasured)] == [1, 2, 3, 4]


def without_module_times(seen: Watched) -> None:
    """Leave the events between modules out: they are counted with those between phases."""
    seen.probe.step_sampler.modules.begin_step = lambda *_: None  # type: ignore[method-assign]


def test_events_are_reused_and_bounded(cuda: FakeCuda) -> None:
    with watched() as seen:
        on_cuda(seen)
        without_module_times(seen)
        training = Training(cuda)
        for _ in range(4):
            training.step()
        created = cuda.events
        for _ in range(20):
            training.step()
        assert cuda.events == created
        cuda.is_finished = False
        for _ in range(40):
            training.step()
        assert cuda.events <= (device_times._MAX_UNDER_WAY + 1) * created


def test_step_with_too_many_phases_is_not_timed(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_times, "_MAX_EVENTS", 20)
    with watched() as seen:
        on_cuda(seen)
        without_module_times(seen)
        training = Training(cuda)
        training.step()
        for _ in range(10):
            training.model(torch.ones(3)).sum().backward()
        training.step()
        training.step()
        training.step()
    assert [event.step for event in seen.all(DeviceTimesMeasured)] == [1, 3, 4]
    assert cuda.events <= 20


def test_no_event_is_recorded_while_graph_is_captured(cuda: FakeCuda) -> None:
    """The stand-in raises where a capture would be invalidated, which fails the test."""
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        training.step()
        with cuda.graph(torch.cuda.CUDAGraph()):
            training.step()
        training.step()
        training.step()
    # The end of the first step is the beginning of the capture.
    assert [event.step for event in seen.all(DeviceTimesMeasured)] == [2, 3]


def test_time_of_pause_belongs_to_no_phase(cuda: FakeCuda) -> None:
    def resume(queue: Any) -> None:
        cuda.clock_ms += 1_000
        queue.submit(Resume)

    with watched(commands=ScriptedCommands([resume])) as seen:
        on_cuda(seen)
        training = Training(cuda)
        training.step()
        training.step()
        seen.submit(Pause)
        training.step()
        training.step()
    told = {event.step: 1e3 * sum(seconds for _, seconds in event.phases) for event in seen.all(DeviceTimesMeasured)}
    assert told[2] == pytest.approx(FORWARD + BACKWARD + OPTIMIZER + DATA)
    assert told[3] == pytest.approx(told[2])


def test_waiting_for_user_is_in_no_phase(cuda: FakeCuda) -> None:
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        for number in range(4):
            if number == 2:
                seen.probe.parts.waits_for_user(True)
                cuda.clock_ms += 1_000
                seen.probe.parts.waits_for_user(False)
            training.step()
    told = {event.step: 1e3 * sum(seconds for _, seconds in event.phases) for event in seen.all(DeviceTimesMeasured)}
    assert told[2] == told[3] == pytest.approx(FORWARD + BACKWARD + OPTIMIZER + DATA)


def test_cost_has_longer_device_time(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    own_operations_take(cuda, monkeypatch)
    # Each of our operations takes the host 2 ms: it reads its clock before and after.
    host_ms = itertools.count(0, 2)
    monkeypatch.setattr(device_times, "perf_counter_ns", lambda: next(host_ms) * 1_000_000)
    # With more of a budget the schedule is charged with nothing. Samples may take long on a busy machine.
    for limit in ("_LONG_S", "_WARMUP_S"):
        monkeypatch.setattr(sampling_schedule, limit, 1e9)
    with watched(budget=UNLIMITED / 2) as seen:
        on_cuda(seen)
        training = Training(cuda)
        hooks = seen.probe.hooks
        for _ in range(4):
            training.step()
    told = seen.all(Progress)
    assert len(seen.all(DeviceTimesMeasured)) == 4
    assert sum(event.own_device_seconds for event in told) == pytest.approx(4 * OWN / 1e3)
    brackets = next(host_ms) // 2 // 2
    excess = sum(event.own_seconds for event in told) - hooks.own_ns / 1e9
    assert excess == pytest.approx((4 * OWN - 2 * brackets) / 1e3, abs=1e-6)
    step_sampler = seen.probe.step_sampler
    assert min(list(step_sampler._cadence._costs)[-2:]) > step_sampler.times.newest_excess[True] > 0, (
        "the cadence is charged with it"
    )
    assert seen.state.cost.own_device_seconds == pytest.approx(4 * OWN / 1e3)


def test_times_between_streams_are_unknown(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        for step in range(6):
            training.step()
            if step == 2:
                # The event of another stream, which is not as far.
                monkeypatch.setattr(
                    training, "step", lambda step=training.step: (step(), setattr(cuda, "clock_ms", 0.0))
                )
    assert all(seconds >= 0 for event in seen.all(DeviceTimesMeasured) for _, seconds in event.phases)
    assert all(event.own >= 0 for event in seen.all(DeviceTimesMeasured))


@pytest.mark.parametrize("is_behind", [True, False])
def test_whether_the_device_waits_for_the_host(cuda: FakeCuda, is_behind: bool) -> None:
    cuda.is_behind = is_behind
    with watched() as seen:
        on_cuda(seen)
        training = Training(cuda)
        for _ in range(6):
            training.step()
    told = seen.all(DeviceTimesMeasured)[1:]
    assert {each.ends for each in told} == {2}
    assert {each.idle_ends for each in told} == {0 if is_behind else 2}
    assert seen.state.device_load.waits_for_host is not is_behind
