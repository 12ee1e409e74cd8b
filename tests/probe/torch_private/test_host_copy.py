"""Copies from a device that has no asynchronous ones, with a stand-in for it: how often it is waited for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradtui.probe.torch_private import host_copy
from gradtui.probe.torch_private.host_copy import HostCopy

SECOND = 1_000_000_000


class OnDevice(torch.Tensor):
    """As a tensor on Apple's GPU: a copy to the host waits."""

    waits = 0
    device = torch.device("mps")  # type: ignore[assignment]

    def to(self, *_arguments: Any, **_named: Any) -> torch.Tensor:
        OnDevice.waits += 1
        return self.as_subclass(torch.Tensor)

    def tolist(self) -> list[Any]:
        raise AssertionError("this would wait for the device")


class Clock:
    now = 10 * SECOND


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(host_copy, "perf_counter_ns", lambda: clock.now)
    monkeypatch.setattr(HostCopy, "_waited_at", 0)
    monkeypatch.setattr(OnDevice, "waits", 0)
    return clock


def on_device(value: float) -> HostCopy:
    return HostCopy(torch.tensor([value]).as_subclass(OnDevice))


def test_slow_device_is_awaited_once_per_second(clock: Clock) -> None:
    first = on_device(1.0)
    assert first.is_there
    assert first.values() == [1.0]
    waits = 0
    copies: list[HostCopy] = []
    for step in range(300):
        clock.now += SECOND // 100
        copies.append(on_device(float(step)))
        before = OnDevice.waits
        arrived = [copy.is_there for copy in copies]
        assert len(set(arrived)) == 1, "all of them or none"
        waits += OnDevice.waits > before
        if arrived[0]:
            assert copies[-1].values() == [float(step)]
            copies.clear()
    assert waits == 3


def test_it_is_waited_for_where_person_has_asked(clock: Clock) -> None:
    assert on_device(1.0).is_there
    clock.now += SECOND // 2
    copy = on_device(2.0)
    assert not copy.is_there
    copy.wait()
    assert copy.is_there
    assert copy.values() == [2.0]
    assert type(copy.tensor()) is torch.Tensor


def test_on_the_host_they_are_there_at_once(clock: Clock) -> None:
    for _ in range(3):
        copy = HostCopy(torch.ones(2))
        assert copy.is_there
        assert copy.values() == [1.0, 1.0]
