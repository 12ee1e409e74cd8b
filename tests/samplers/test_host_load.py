"""What a process takes of the host, from counters of Linux in files of a test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradtui.probe.samplers import host_load
from gradtui.probe.samplers.host_load import HostLoadReader, cores


def files(root: Path, pages: int, swapped: int, waited_ns: int = 0, **more: str) -> None:
    contents = {
        "proc/self/schedstat": f"{10**9} {waited_ns} 7\n",
        "proc/vmstat": f"pgpgin 9\npswpin {pages}\n",
        "proc/self/status": f"Name:\tx\nVmSwap:\t{swapped} kB\n",
    }
    for name, text in (contents | more).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_counters_become_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 12.0])
    monkeypatch.setattr(host_load, "monotonic", lambda: next(times))
    monkeypatch.setattr(host_load, "_page_faults", iter([5, 45]).__next__)
    files(tmp_path, 100, 0)
    reader = HostLoadReader(tmp_path)
    assert reader.read() is None
    files(tmp_path, 300, 2_048, waited_ns=500_000_000)
    load = reader.read()
    assert (load.page_faults, load.swapped_in, load.swapped) == (20.0, 200 * 4096 / 2, 2 << 20)
    assert 0.0 <= load.cores_used < 100.0
    assert load.held_up == 0.25


def test_no_statistics_of_the_scheduler(tmp_path: Path) -> None:
    reader = HostLoadReader(tmp_path)
    reader.read()
    load = reader.read()
    assert load is None or load.held_up == 0.0


def test_quota_of_control_group_limits_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert cores(tmp_path) == 16
    files(tmp_path, 0, 0, **{"sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert cores(tmp_path) == 16
    files(tmp_path, 0, 0, **{"sys/fs/cgroup/cpu.max": "350000 100000\n"})
    assert cores(tmp_path) == 4
