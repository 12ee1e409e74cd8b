"""Samplers on their clock, and what the driver says or does not say."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from gradtui.protocol.events import Event, PauseChanged
from gradtui.samplers.device import DeviceSampler
from gradtui.samplers.nvml import DeviceReading, Nvml
from gradtui.samplers.sampler import SamplerThread


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


def test_samplers_run_on_a_thread_of_their_own_until_stopped() -> None:
    done = threading.Event()
    ticking = Ticking(5, done)
    events, failures = run([ticking], done)
    assert [event.step for event in events][:2] == [3, 1]
    assert failures == []
    assert ticking.threads.isdisjoint({threading.get_ident()})
    assert not any(thread.name == "gradtui-sampler" for thread in threading.enumerate())


def test_a_sampler_that_fails_is_left_out_and_the_others_go_on() -> None:
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


def test_the_host_is_told_where_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sample = DeviceSampler(lambda: 2.5, lambda: 7, lambda: 0).sample()
    assert (sample.at, sample.step, sample.source) == (2.5, 7, "host")
    assert sample.host_total == psutil.virtual_memory().total
    assert sample.host_rss is not None
    assert 1 << 20 < sample.host_rss < sample.host_total
    unknown = (sample.device_used, sample.device_total, sample.device_process, sample.allocated, sample.reserved)
    assert unknown == (None,) * 5
    assert sample.utilisation is None


class NVMLError(Exception):
    pass


def driver(**functions: Callable[..., object]) -> Any:
    def refused(handle: object) -> object:
        raise NVMLError("not supported")

    names = ("GetMemoryInfo", "GetUtilizationRates", "GetName", "GetComputeRunningProcesses")
    answers = {f"nvmlDevice{name}": functions.get(name, refused) for name in names}
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByIndex=lambda index: f"handle {index}",
        nvmlDeviceGetHandleByUUID=lambda name: f"handle of {name}",
        **answers,
    )


def test_everything_that_the_driver_tells() -> None:
    reading = Nvml(
        driver(
            GetMemoryInfo=lambda handle: SimpleNamespace(used=5, total=9),
            GetUtilizationRates=lambda handle: SimpleNamespace(gpu=50),
            GetName=lambda handle: b"NVIDIA X",
            GetComputeRunningProcesses=lambda handle: [
                SimpleNamespace(pid=1, usedGpuMemory=1),
                SimpleNamespace(pid=os.getpid(), usedGpuMemory=4),
            ],
        )
    ).read(0)
    assert reading == DeviceReading(name="NVIDIA X", used=5, total=9, process=4, utilisation=0.5)


def test_what_the_driver_refuses_is_unknown() -> None:
    assert Nvml(driver()).read(0) == DeviceReading()
    alone = Nvml(driver(GetMemoryInfo=lambda handle: SimpleNamespace(used=5, total=9))).read(0)
    assert (alone.used, alone.total, alone.process, alone.utilisation) == (5, 9, None, None)


def test_a_process_that_the_driver_knows_under_another_number_is_unknown() -> None:
    other = [SimpleNamespace(pid=-1, usedGpuMemory=4)]
    assert Nvml(driver(GetComputeRunningProcesses=lambda handle: other)).read(0).process is None


@pytest.mark.parametrize(
    ("visible", "handle"),
    [("", "handle 1"), ("4", "handle 1"), ("4, 6", "handle 6"), ("GPU-a,MIG-b", "handle of MIG-b")],
)
def test_the_device_is_the_one_torch_means(visible: str, handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    asked: list[object] = []
    Nvml(driver(GetName=lambda given: asked.append(given) or "x")).read(1)
    assert asked == [handle]


def test_the_sampler_reads_the_device_that_the_models_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    home = [0]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    stats = {"allocated_bytes": {"all": {"current": 10}}, "reserved_bytes": {"all": {"current": 20}}}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda index: stats if index == 1 else {})
    sampler = DeviceSampler(lambda: 2.5, lambda: 7, lambda: home[0])
    sampler._nvml = Nvml(driver(GetName=lambda handle: handle))
    first = sampler.sample()
    assert (first.source, first.allocated, first.reserved) == ("handle 0", None, None)
    home[0] = 1
    second = sampler.sample()
    assert (second.source, second.allocated, second.reserved) == ("handle 1", 10, 20)


def test_a_device_that_the_driver_does_not_know_is_unknown() -> None:
    missing = driver()
    missing.nvmlDeviceGetHandleByIndex = missing.nvmlDeviceGetName
    assert Nvml(missing).read(0) == DeviceReading()


def test_without_a_driver_there_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fails() -> None:
        raise OSError("no library")

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    assert Nvml.open() is None
