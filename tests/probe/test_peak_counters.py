"""Peaks of single phases, and readings of the script's that stay what they would be: with counters of the allocator's shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.hook_set import HookSet
from gradtui.probe.peak_counters import PeakCounters
from gradtui.probe.torch_private import PeakFunctions

PART = ("current", "peak", "allocated", "freed")


class FakeAllocator:
    """Counters as `torch._C._cuda_memoryStats` returns them, behind functions of the same names."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.highest: dict[int, int] = {}
        self.ever: dict[int, int] = {}
        self.namespace = SimpleNamespace(
            _cuda_memoryStats=self.stats,
            _cuda_resetPeakMemoryStats=self.reset,
            _accelerator_getDeviceStats=self.stats,
            _accelerator_resetPeakStats=self.reset,
        )

    def functions(self) -> PeakFunctions:
        names = list(vars(self.namespace))
        return PeakFunctions(self.namespace, (names[0], names[2]), (names[1], names[3]), self.stats, self.reset)

    def allocate(self, device: int, change: int) -> None:
        self.now[device] = max(0, self.now.get(device, 0) + change)
        self.ever[device] = self.ever.get(device, 0) + max(0, change)
        self.highest[device] = max(self.highest.get(device, 0), self.now[device])

    def stats(self, device: int) -> dict[str, Any]:
        now, peak = self.now.get(device, 0), self.highest.get(device, 0)
        ever = self.ever.get(device, 0)
        pools = {pool: dict(zip(PART, (now, peak, ever, ever - now))) for pool in ("all", "small_pool", "large_pool")}
        return {"allocated_bytes": pools, "requested_bytes": pools, "num_ooms": 0}

    def reset(self, device: int) -> None:
        self.highest[device] = self.now.get(device, 0)


def failed(part: str, error: str, disabled: bool) -> None:
    raise AssertionError(f"{part}: {error} {disabled}")


Act = tuple[str, int, int]
ACTS = st.tuples(
    st.sampled_from(["allocate", "allocate", "phase", "reset", "accelerator reset"]),
    st.integers(0, 1),
    st.integers(-50, 80),
)


@given(st.lists(ACTS, max_size=60))
def test_the_scripts_readings_are_those_of_a_run_without_us(acts: list[Act]) -> None:
    alone, ours = FakeAllocator(), FakeAllocator()
    hooks, counters = HookSet(failed), PeakCounters()
    counters.install(hooks, ours.functions())
    since = {0: 0, 1: 0}
    for act, device, change in acts:
        if act == "allocate":
            for allocator in (alone, ours):
                allocator.allocate(device, change)
            since[device] = max(since[device], ours.now[device])
        elif act == "phase":
            counters.restart(device)
            since[device] = ours.now.get(device, 0)
        else:
            name = "_cuda_resetPeakMemoryStats" if act == "reset" else "_accelerator_resetPeakStats"
            getattr(alone.namespace, name)(device)
            getattr(ours.namespace, name)(device)
            since[device] = ours.now.get(device, 0)
        for place in (0, 1):
            for name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):
                assert getattr(ours.namespace, name)(place) == getattr(alone.namespace, name)(place)
            assert counters.peak(place, "requested_bytes") == since[place]


def test_where_the_functions_are_gone_nothing_is_ever_reset() -> None:
    hooks, counters = HookSet(failed), PeakCounters()
    counters.install(hooks, None)
    counters.restart(0)
    assert not counters.may_reset
    assert counters.peak(0, "requested_bytes") is None


def test_the_functions_are_put_back() -> None:
    allocator, hooks, counters = FakeAllocator(), HookSet(failed), PeakCounters()
    before = dict(vars(allocator.namespace))
    counters.install(hooks, allocator.functions())
    assert all(vars(allocator.namespace)[name] is not value for name, value in before.items())
    hooks.remove()
    assert dict(vars(allocator.namespace)) == before
