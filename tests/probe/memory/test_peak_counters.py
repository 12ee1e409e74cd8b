"""Peaks of single phases, and readings of the script's that stay what they would be: with counters of the allocator's shape."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.counters import COUNTERS, READERS, RESETTERS, FakeAllocator
from helpers.programs import run_program
from hypothesis import given
from hypothesis import strategies as st

import gradtui
from gradtui.probe.memory.memory_counters import CudaAllocator
from gradtui.probe.memory.peak_counters import PeakCounters, of_this_process
from gradtui.probe.samplers.cpu_memory import Reading
from gradtui.probe.torch_private.cuda import PeakFunctions, cuda_peak_functions

needs_these_names = pytest.mark.skipif(
    not hasattr(torch._C, "_accelerator_getDeviceStats"), reason="torch.accelerator counts no memory"
)


def peak_of(stats: dict[str, Any] | None, unit: int = COUNTERS.index("requested_bytes") + 1) -> int:
    peak: int = stats["requested_bytes"]["all"]["peak"]
    assert peak % unit == 0
    return peak // unit


ACTS = st.tuples(
    st.sampled_from(["allocate", "allocate", "allocate", "phase", *RESETTERS]), st.integers(0, 1), st.integers(-50, 80)
)


@given(st.lists(ACTS, max_size=60))
def test_readings_of_script_and_phases_are_both_right(
    acts: list[tuple[str, int, int]],
) -> None:
    alone, ours = FakeAllocator(), FakeAllocator()
    counters = ours.protected()
    since = {0: 0, 1: 0}
    for act, device, change in acts:
        if act == "allocate":
            for allocator in (alone, ours):
                allocator.allocate(device, change)
            since[device] = max(since[device], ours.now[device])
        elif act == "phase":
            assert peak_of(counters.take(device)) == since[device]
            since[device] = ours.now.get(device, 0)
        else:
            for allocator in (alone, ours):
                getattr(allocator.namespace, act)(device)
        for device in (0, 1):
            for name in READERS:
                assert getattr(ours.namespace, name)(device) == getattr(alone.namespace, name)(device)


@pytest.mark.skipif(torch.cuda.is_initialized(), reason="CUDA is initialised")
def test_before_cuda_is_initialised_allocator_is_not_asked() -> None:
    allocator = FakeAllocator()
    allocator.allocate(0, 300)
    assert CudaAllocator((0,), allocator.protected()).read() == Reading(0, 0)


def test_where_functions_are_gone_nothing_is_ever_reset() -> None:
    counters = PeakCounters()
    counters.protect(None)
    assert not counters.protects
    assert counters.take(0) is None


def test_unfoldable_reader_keeps_us_from_resetting() -> None:
    allocator = FakeAllocator()
    allocator.namespace._accelerator_getDeviceStats = lambda device: (
        allocator.stats(device) | {"new_bytes": {"all": {"current": 0, "peak": allocator.highest.get(device, 0)}}}
    )
    counters = allocator.protected()
    allocator.allocate(0, 100)
    allocator.allocate(0, -60)
    assert counters.take(0) is None
    assert not counters.protects
    assert allocator.highest[0] == 100


def test_allocator_errors_reach_script_and_change_nothing() -> None:
    allocator = FakeAllocator()
    counters = allocator.protected()
    allocator.allocate(0, 100)
    assert peak_of(counters.take(0)) == 100
    for name in (*READERS, *RESETTERS):
        with pytest.raises(RuntimeError, match="Invalid device"):
            getattr(allocator.namespace, name)(7)
    with pytest.raises(RuntimeError, match="Invalid device"):
        counters.take(7)
    allocator.allocate(0, -100)
    assert allocator.namespace._cuda_memoryStats(0)["allocation"]["all"]["peak"] == 100


def test_protecting_twice_wraps_once() -> None:
    allocator = FakeAllocator()
    counters = allocator.protected()
    before = dict(vars(allocator.namespace))
    counters.protect(allocator.functions())
    assert dict(vars(allocator.namespace)) == before


def test_functions_are_put_back_unless_peak_folded() -> None:
    allocator = FakeAllocator()
    before = dict(vars(allocator.namespace))
    counters = allocator.protected()
    counters.release()
    assert dict(vars(allocator.namespace)) == before
    assert not counters.protects
    counters.protect(allocator.functions())
    allocator.allocate(0, 1000)
    allocator.allocate(0, -1000)
    counters.take(0)
    counters.release()
    assert peak_of(allocator.namespace._cuda_memoryStats(0)) == 1000


def test_concurrent_reader_never_sees_peak_fall() -> None:
    allocator = FakeAllocator()
    counters = allocator.protected()
    allocator.allocate(0, 1000)
    allocator.allocate(0, -1000)
    seen: list[int] = []

    def read() -> None:
        seen.extend(peak_of(allocator.namespace._cuda_memoryStats(0)) for _ in range(300))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        counters.take(0)
    reader.join(60)
    assert set(seen) == {1000}


@needs_these_names
def test_the_names_are_those_of_this_torch() -> None:
    """The build for the CPU has `torch.accelerator`'s functions and none of CUDA's; the one for CUDA has both."""
    functions = cuda_peak_functions()
    if not hasattr(torch._C, "_cuda_memoryStats"):
        assert functions is None
    else:
        assert (functions.readers, functions.resetters) == (READERS, RESETTERS)


@needs_these_names
def test_torch_readers_look_functions_up_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the protection rests on: `torch.cuda` and `torch.accelerator` in this very version."""
    allocator = FakeAllocator()
    for name in (*READERS, *RESETTERS):
        monkeypatch.setattr(torch._C, name, getattr(allocator.namespace, name), raising=False)
    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", lambda: True, raising=False)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_get_device_index", lambda device, optional: 0)
    monkeypatch.setattr("torch.accelerator.memory._get_device_index", lambda device, optional: 0)
    monkeypatch.setattr("torch.cuda._lazy_init", lambda: None)
    counters = PeakCounters()
    counters.protect(PeakFunctions(torch._C, READERS, RESETTERS))
    allocator.allocate(0, 1000)
    allocator.allocate(0, -400)
    taken = peak_of(counters.take(0))
    unit = COUNTERS.index("allocated_bytes") + 1
    readings = {
        torch.cuda.max_memory_allocated(0) // unit,
        torch.accelerator.max_memory_allocated(0) // unit,
        torch.cuda.memory_stats(0)["allocated_bytes.all.peak"] // unit,
        torch.accelerator.memory_stats(0)["allocated_bytes.all.peak"] // unit,
        torch.cuda.max_memory_reserved(0) // (COUNTERS.index("reserved_bytes") + 1),
    }
    assert (taken, readings) == (1000, {1000})
    torch.cuda.reset_peak_memory_stats(0)
    assert torch.cuda.max_memory_allocated(0) == torch.accelerator.max_memory_allocated(0) == 600 * unit


UNDER_THE_COMMAND = """
import atexit, runpy, sys, torch
from helpers.counters import READERS, RESETTERS, FakeAllocator

fake = FakeAllocator()
for name in (*READERS, *RESETTERS):
    setattr(torch._C, name, getattr(fake.namespace, name))
fake.allocate(0, 1000)
fake.allocate(0, -400)
open(sys.argv[1], "w").write('''
import atexit, torch
def peak():
    return torch._C._cuda_memoryStats(0)["allocation"]["all"]["peak"]
atexit.register(lambda: print("at exit", peak()))
from gradtui.probe.memory.peak_counters import of_this_process
print("ours", of_this_process.take(0)["allocation"]["all"]["peak"])
print("ours", of_this_process.take(0)["allocation"]["all"]["peak"])
print("script", peak())
''')
sys.argv[:] = ["gradtui", "--plain", sys.argv[1]]
runpy.run_module("gradtui", run_name="__main__")
"""


def test_readings_under_command_stay_right_to_end(tmp_path: Path) -> None:
    done = run_program(UNDER_THE_COMMAND, tmp_path / "script.py", check=False)
    assert done.stdout.splitlines() == ["ours 1000", "ours 600", "script 1000", "at exit 1000"], done.stderr


def test_watch_of_script_protects_readings_for_good() -> None:
    """The script goes on when the watch is closed, and what was folded must not be lost to it. A build for the CPU has no
    such counters."""
    has_counters = cuda_peak_functions() is not None
    with gradtui.watch(torch.nn.Linear(1, 1), progress=False):
        assert of_this_process.protects == has_counters
    assert of_this_process.protects == has_counters


def test_what_we_allocate_apart_is_in_no_peak() -> None:
    allocator, alone = FakeAllocator(), FakeAllocator()
    counters = allocator.protected()
    for each in (allocator, alone):
        each.allocate(0, 500)
        each.allocate(0, -300)
    with counters.apart([0]):
        allocator.allocate(0, 9_000)
        allocator.allocate(0, -9_000)
    for each in (allocator, alone):
        each.allocate(0, 100)
    assert_same_peaks(allocator, alone)
    assert peak_of(counters.take(0)) == 500, "of the phase"
    with counters.apart([0]):
        allocator.allocate(0, 9_000)
        allocator.allocate(0, -9_000)
    assert peak_of(counters.take(0)) == 300
    assert_same_peaks(allocator, alone)


def assert_same_peaks(one: FakeAllocator, other: FakeAllocator) -> None:
    found, expected = (each.namespace._cuda_memoryStats(0) for each in (one, other))
    assert found["allocated_bytes"]["all"]["peak"] == expected["allocated_bytes"]["all"]["peak"]


def test_nothing_is_reset_without_protection() -> None:
    with PeakCounters().apart([0]):
        pass


def test_what_is_raised_apart_is_passed_on() -> None:
    allocator = FakeAllocator()
    with pytest.raises(ValueError, match="ours"), allocator.protected().apart([0, 7]):
        raise ValueError("ours")


@needs_these_names
def test_torch_still_declares_the_names_relied_on() -> None:
    """Builds without CUDA lack the functions, but not their declarations."""
    declared = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text(encoding="utf-8")
    for name in (*READERS, *RESETTERS):
        assert f"def {name}(" in declared
