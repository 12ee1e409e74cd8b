"""Samplers on their clock, and what the driver says or does not say."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from helpers.fake_driver import FakeDriver, Gpu
from helpers.watched import watched

from gradtui.probe.samplers.device import DeviceSampler
from gradtui.probe.samplers.nvml import Nvml
from gradtui.probe.samplers.sampler import SamplerThread
from gradtui.protocol.driver import NvmlTrouble, NvmlTroubleKind
from gradtui.protocol.events import Event, PauseChanged


class Ticking:
    """Tells a new event every time, up to so many."""

    def __init__(self, count: int, done: threading.Event, period_s: float = 0.0) -> None:
        self.period_s = period_s
        self._left = count
        self._done = done
        self.threads: set[int] = set()

    def sample(self) -> Event | None:
        self.threads.add(threading.get_ident())
        self._left -= 1
        if self._left <= 0:
            self._done.set()
        return PauseChanged(float(self._left), self._left, True) if self._left % 2 else None


class Failing:
    period_s = 0.0

    def __init__(self) -> None:
        self.asked = 0

    def sample(self) -> Event | None:
        self.asked += 1
        raise OSError("driver gone")


def run(samplers: list[Any], done: threading.Event) -> tuple[list[Event], list[tuple[str, str]]]:
    events: list[Event] = []
    failures: list[tuple[str, str]] = []
    thread = SamplerThread(samplers, events.append, lambda part, error: failures.append((part, error)))
    thread.start()
    assert done.wait(60)
    thread.stop()
    return events, failures


def test_samplers_run_on_own_thread_until_stopped() -> None:
    done = threading.Event()
    ticking = Ticking(5, done)
    events, failures = run([ticking], done)
    assert [event.step for event in events][:2] == [3, 1]
    assert failures == []
    assert ticking.threads.isdisjoint({threading.get_ident()})
    assert not any(thread.name == "gradtui-sampler" for thread in threading.enumerate())


def test_failing_sampler_is_left_out() -> None:
    done, failing = threading.Event(), Failing()
    events, failures = run([failing, Ticking(6, done)], done)
    assert failing.asked == 1
    assert failures == [("Failing", "OSError: driver gone")]
    assert len(events) >= 2


def test_each_sampler_has_its_own_period() -> None:
    done, often, rarely = (
        threading.Event(),
        Ticking(8, threading.Event()),
        Ticking(1, threading.Event(), period_s=3600.0),
    )
    often._done = done
    run([rarely, often], done)
    assert rarely._left == 0


def test_a_thread_whose_samplers_all_failed_ends() -> None:
    failures: list[str] = []
    thread = SamplerThread([Failing()], lambda event: None, lambda part, error: failures.append(part))
    thread.start()
    thread._thread.join(60)
    assert not thread._thread.is_alive()
    thread.stop()
    assert failures == ["Failing"]


def test_stopping_before_the_start_is_no_error() -> None:
    SamplerThread([], lambda event: None, lambda part, error: None).stop()


def test_host_is_told_where_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    sample = DeviceSampler(lambda: 2.5, lambda: 7, lambda: 0).sample()
    assert (sample.at, sample.step, sample.source) == (2.5, 7, "host")
    assert sample.host_total == psutil.virtual_memory().total
    assert sample.host_rss is not None
    assert 1 << 20 < sample.host_rss < sample.host_total
    assert sample.host_available is not None
    assert 1 << 20 < sample.host_available < sample.host_total
    unknown = (sample.device_used, sample.device_total, sample.device_process, sample.allocated, sample.reserved)
    assert unknown == (None,) * 5
    assert sample.utilisation is None


def nested(**counters: tuple[int, int]) -> dict[str, object]:
    """Statistics in the nesting of `torch.cuda.memory_stats_as_nested_dict`, from (current, peak)."""
    return {
        f"{name}_bytes": {"all": {"current": now, "peak": peak, "allocated": 0, "freed": 0}}
        for name, (now, peak) in counters.items()
    }


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine with two devices, of which the first holds nothing; the number of the one that the models are on."""
    stats = {0: {}, 1: nested(requested=(9, 29), allocated=(10, 30), reserved=(20, 40))}
    known = {
        index: SimpleNamespace(uuid=f"uuid-{index}", pci_domain_id=0, pci_bus_id=59, pci_device_id=index)
        for index in (0, 1)
    }
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats.__getitem__)
    monkeypatch.setattr(torch.cuda, "get_device_properties", known.__getitem__)
    return [0]


def sampler_of(home: list[int], nvml: Nvml) -> DeviceSampler:
    sampler = DeviceSampler(lambda: 2.5, lambda: 7, lambda: home[0])
    sampler._nvml = nvml
    return sampler


def test_sampler_reads_device_that_models_are_on(home: list[int]) -> None:
    driver = FakeDriver({"GPU-uuid-0": Gpu(name="first"), "GPU-uuid-1": Gpu(name="second", used=50, total=80)})
    sampler = sampler_of(home, Nvml(driver.module()))
    first = sampler.sample()
    assert (first.source, first.allocated, first.reserved) == ("first", None, None)
    home[0] = 1
    second = sampler.sample()
    assert (second.source, second.device_used, second.device_total) == ("second", 50, 80)
    assert (second.requested, second.allocated, second.reserved) == (9, 10, 20)
    assert (second.requested_peak, second.allocated_peak, second.reserved_peak) == (29, 30, 40)


def test_requests_that_backend_does_not_count_are_unknown(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As with cudaMallocAsync, whose counters of requests stay zero."""
    stats = nested(requested=(0, 0), allocated=(10, 30), reserved=(20, 40))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: stats)
    sample = sampler_of(home, Nvml(FakeDriver({}).module())).sample()
    assert (sample.requested, sample.requested_peak, sample.allocated) == (None, None, 10)


def test_allocator_without_statistics_costs_its_figures(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(index: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuses)
    driver = FakeDriver({"GPU-uuid-0": Gpu(used=50)})
    sample = sampler_of(home, Nvml(driver.module())).sample()
    assert (sample.reserved, sample.device_used) == (None, 50)
    assert sample.host_rss is not None


def test_broken_driver_costs_its_figures(home: list[int]) -> None:
    driver = FakeDriver({"GPU-uuid-1": Gpu(used=50, processes=[(os.getpid(), 30)])})
    sampler = sampler_of(home, Nvml(driver.module()))
    home[0] = 1
    assert (sampler.sample().device_used, sampler.sample().device_process) == (50, 30)
    driver.lost = True
    sample = sampler.sample()
    assert (sample.device_used, sample.device_process, sample.utilisation) == (None, None, None)
    assert sample.reserved == 20
    assert sample.trouble == NvmlTrouble(NvmlTroubleKind.LOST)
    driver.lost = False
    again = sampler.sample()
    assert (again.device_process, again.trouble) == (30, None)


def test_unnamed_device_costs_driver_figures(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(index: int) -> None:
        raise AssertionError("Invalid device id")

    monkeypatch.setattr(torch.cuda, "get_device_properties", refuses)
    home[0] = 1
    sample = sampler_of(home, Nvml(FakeDriver({"GPU-uuid-1": Gpu(used=50)}).module())).sample()
    assert (sample.device_used, sample.reserved) == (None, 20)


def test_sampler_looks_often_until_cuda_is_used(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    sampler = sampler_of(home, Nvml(FakeDriver({}).module()))
    assert sampler.sample().reserved is None
    assert sampler.period_s < 1.0
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    sampler.sample()
    assert sampler.period_s == 1.0


TOUCH_THE_DRIVER = (
    "is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_properties", "get_device_name",
    "memory_stats_as_nested_dict",
)  # fmt: skip


def test_before_script_uses_cuda_nothing_touches_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuInit` fixes which devices there are; a script may set `CUDA_VISIBLE_DEVICES` and fork until it uses CUDA itself."""
    touched: list[str] = []
    for name in TOUCH_THE_DRIVER:
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: touched.append(name))
    monkeypatch.setattr(Nvml, "connect", lambda self: touched.append("NVML"))
    sampler = DeviceSampler(lambda: 2.5, lambda: 7, lambda: 0)
    assert [sampler.sample().source for _ in range(2)] == ["host"] * 2
    model = torch.nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert seen.state.step == 4
    assert touched == []


def test_nvml_is_opened_once_with_cuda(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    module = FakeDriver({"GPU-uuid-0": Gpu(name="first", used=50)}).module()
    module.nvmlInit = lambda: opened.append(threading.get_ident())
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    sampler = DeviceSampler(lambda: 2.5, lambda: 7, lambda: home[0])
    assert sampler.sample().device_used is None
    assert opened == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert [sampler.sample().device_used for _ in range(2)] == [50, 50]
    assert opened == [threading.get_ident()]


def test_every_other_device_that_torch_uses_is_read(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    gpus = {"GPU-uuid-0": Gpu(used=50), "GPU-uuid-1": Gpu(name="second", used=60)}
    sample = sampler_of(home, Nvml(FakeDriver(gpus).module())).sample()
    (other,) = sample.others
    assert (sample.index, sample.device_used) == (0, 50)
    assert (other.index, other.source, other.device_used, other.allocated, other.reserved) == (1, "second", 60, 10, 20)
    # Of the first one torch has reserved nothing.
    home[0] = 1
    sample = sampler_of(home, Nvml(FakeDriver(gpus).module())).sample()
    assert (sample.index, sample.device_used, sample.others) == (1, 60, ())


@pytest.mark.parametrize(("reserved", "expected"), [(0, None), (20, NvmlTroubleKind.PROCESS_HIDDEN)])
def test_unlisted_process_with_memory_is_hidden(
    home: list[int], reserved: int, expected: NvmlTroubleKind | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver lists a process once it has a context on the device."""
    stats = nested(allocated=(reserved, reserved), reserved=(reserved, reserved))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: stats)
    driver = FakeDriver({"GPU-uuid-0": Gpu(used=50, processes=[])})
    trouble = sampler_of(home, Nvml(driver.module())).sample().trouble
    assert (trouble.kind if trouble is not None else None) == expected


def test_device_that_is_not_nvidias_has_no_nvml(home: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # a build for NVIDIA's devices lacks AMD's library
    driver = FakeDriver({})
    driver.lost = True
    sample = sampler_of(home, Nvml(driver.module())).sample()
    assert (sample.trouble, driver.asked) == (None, [])
