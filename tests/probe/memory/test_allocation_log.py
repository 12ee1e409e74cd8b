"""The memory of a step from within, against arithmetic and against torch's own profiler."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers.programs import run_program
from torch.profiler import ProfilerActivity, profile
from zoo import SPECIMENS

from gradtui.probe.autograd.module_call_log import OUTSIDE
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.probe.memory.memory_profiler import highest_by_module, holdings, phase_at, thinned
from gradtui.protocol.vocabulary import Holding, Phase

KIB = 1024


def trace(total: int = 0) -> AllocationLog:
    return AllocationLog("cpu", total, lambda: OUTSIDE)


def bytes_of(values: int) -> torch.Tensor:
    return torch.ones(values, dtype=torch.uint8)


def profiled(work: Callable[[], object]) -> int:
    """The highest number of bytes above the start, by the allocator's own events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    highest = now = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            highest = max(highest, now)
    return highest


def test_made_and_freed_bytes_are_followed_exactly() -> None:
    with trace(100) as watching:
        first = bytes_of(KIB)
        second = first + 1
        del first
        third = bytes_of(10)
        view = third[2:4]
        del third
    assert watching.curve == [100, 100 + KIB, 100 + 2 * KIB, 100 + KIB, 110 + KIB]
    del view
    # What is freed when no operation runs is seen as well.
    assert watching.curve[-1] == 100 + KIB
    del second
    assert watching.curve[-1] == 100


def test_earlier_memory_counts_when_freed() -> None:
    old = bytes_of(KIB)
    with trace(5 * KIB) as watching:
        old.add_(1)
        del old
    assert watching.curve == [5 * KIB, 4 * KIB]


def test_results_in_place_are_no_allocations() -> None:
    out = bytes_of(8)
    with trace() as watching:
        torch.add(out, 1, out=out)
        out.mul_(2).view(2, 4)
    assert watching.curve == [0]


def test_allocators_word_makes_up_for_what_was_missed() -> None:
    watching = trace(10)
    watching.measured(50)
    watching.measured(50)
    with watching:
        kept = bytes_of(5)
    assert watching.curve == [10, 50, 55]
    del kept


def test_nothing_is_kept_alive_or_heard_afterwards() -> None:
    with trace() as watching:
        made = bytes_of(KIB)
    gone = weakref.ref(made)
    watching.close()
    del made
    assert gone() is None
    assert watching.curve[-1] == KIB
    left = weakref.ref(watching)
    del watching
    gc.collect()
    assert left() is None


def test_vanished_trace_leaves_its_tensors_alone() -> None:
    with trace() as watching:
        made = bytes_of(KIB)
    del watching
    gc.collect()
    del made


@pytest.mark.slow
def test_watching_imports_no_compiler() -> None:
    code = (
        "import sys, torch; from gradtui.probe.memory.allocation_log import AllocationLog\n"
        "with AllocationLog('cpu', 0, lambda: -1) as watching: torch.ones(3) + 1\n"
        "assert len(watching.curve) > 1; assert 'torch._dynamo' not in sys.modules"
    )
    run_program(code)


def test_operations_belong_to_the_module_that_runs() -> None:
    index = [4]
    with AllocationLog("cpu", 0, lambda: index[0]) as watching:
        kept = [bytes_of(1)]
        index[0] = 7
        kept.append(bytes_of(2))
    assert watching.modules == [4, 4, 7]
    assert [allocation.module for allocation in watching.allocations] == [4, 7]


WITH_WORKSPACES = ("conv_batchnorm", "lstm", "inplace_residual", "sparse_embedding", "checkpointed")
"""Kernels of these allocate while they run and free before they return, which no operation tells of."""


@pytest.mark.parametrize("name", SPECIMENS)
def test_peak_of_step_is_that_of_torchs_profiler(name: str) -> None:
    specimen = SPECIMENS[name]()
    model = specimen.model
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9)

    def step() -> None:
        specimen.loss(model(*specimen.batch(0))).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    step()
    gc.collect()
    with trace() as watching:
        step()
    watching.close()
    torch.manual_seed(0)
    highest = profiled(step)
    if name in WITH_WORKSPACES:
        assert 0 < max(watching.curve) < highest
    else:
        assert max(watching.curve) == pytest.approx(highest, rel=0.02, abs=512)


# ---- what a trace says


def test_holdings_at_a_place_by_kind_and_module() -> None:
    weight = torch.ones(KIB)
    watching = AllocationLog("cpu", 8 * KIB, lambda: 2)
    watching.know(weight, "parameters", 1)
    with watching:
        kept = weight * 2
        gone = kept + 1
        del gone
    marks = [(0, Phase.FORWARD)]
    peak = watching.curve.index(max(watching.curve))
    assert holdings(watching.allocations, peak, watching.curve[peak], marks) == (
        Holding("activations", 2, 8 * KIB, 2),
        Holding("parameters", 1, 4 * KIB, 1),
        Holding("other", OUTSIDE, 4 * KIB, 0),
    )
    last = len(watching.curve) - 1
    assert holdings(watching.allocations, last, watching.curve[last], marks)[0].bytes == 4 * KIB
    del kept


def test_many_small_holdings_are_summed_up_by_kind() -> None:
    index = [0]
    with AllocationLog("cpu", 0, lambda: index[0]) as watching:
        kept = []
        for number in range(40):
            index[0] = number
            kept.append(bytes_of(100 - number))
    found = holdings(watching.allocations, 40, watching.curve[40], [(0, Phase.BACKWARD)])
    assert sum(holding.bytes for holding in found) == watching.curve[40]
    small = sum(range(61, 89))
    assert found == (
        Holding("temporaries", OUTSIDE, small, 28),
        *(Holding("temporaries", number, 100 - number, 1) for number in range(12)),
        Holding("other", OUTSIDE, 0, 0),
    )


def test_the_phase_of_a_place() -> None:
    marks = [(2, Phase.FORWARD), (5, Phase.BACKWARD)]
    assert [phase_at(marks, index) for index in (0, 2, 4, 5, 9)] == [
        Phase.OTHER, Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD,
    ]  # fmt: skip


def test_module_is_as_high_as_what_it_contains() -> None:
    # 0 contains 1 and 2, 2 contains 3; 4 never runs.
    parents = [-1, 0, 0, 2, -1]
    assert highest_by_module([5, 9, 7, 30, 8, 1], [OUTSIDE, 0, 1, 3, 2, 1], parents) == (30, 7, 30, 30, None)


@pytest.mark.parametrize("length", [1, 2, 511, 512, 513, 5_000])
def test_a_thinned_curve_keeps_its_peak(length: int) -> None:
    curve = [(index * 7919) % length for index in range(length)]
    thin = thinned(curve)
    assert len(thin) <= 512
    assert max(thin) == max(curve)
    assert length > 512 or list(thin) == curve


def test_tensors_without_storage_do_not_end_trace() -> None:
    sparse = torch.eye(3).to_sparse()
    with trace() as watching:
        (sparse + sparse).coalesce()
        kept = bytes_of(KIB)
    assert watching.failure is None
    assert watching.curve[-1] >= kept.nbytes


def test_handler_error_while_freeing_reaches_script() -> None:
    """Python discards what a callback of a weak reference raises, so no Python code runs in one."""
    tensors = [torch.ones(3)]
    with AllocationLog("cpu", 12, lambda: 0) as watching:
        tensors.append(tensors[0] + 1)
        frames: list[str] = []
        sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" else None)
        tensors.clear()
        sys.setprofile(None)
    assert frames == []
    assert watching.curve == [12, 24, 12, 0]
