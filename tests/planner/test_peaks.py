"""The most bytes that are alive under another choice of what trains, against runs of models that are written that way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers.examples import combinations, nightly
from helpers.forecasts import asked_of
from helpers.watched import CountingAllocator, Watched
from patterns import patterns
from profiled_steps import BEGIN_WITH_GRADIENTS, CLEARED_FIRST, LOOPS, profiled_run
from torch import nn
from torch.utils.checkpoint import checkpoint
from zoo import SPECIMENS

from gradtui.planner import Forecaster
from gradtui.planner.lifetimes import freed_after
from gradtui.planner.live_bytes import LiveBytes
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.protocol import events as ev
from gradtui.protocol.forecasts import Change, ForecastAsked
from gradtui.protocol.operations import ModuleCall, Operation, OperationsRecorded, RecordedTensor, TensorNumber

START = CountingAllocator().total
"""The total of the tests' allocator, with which each profile begins."""


def operation(call: int, taken: int, returned: int) -> Operation:
    return Operation("aten.neg.default", (TensorNumber(taken),), (), (returned,), True, call, call)


def test_what_call_takes_is_held_until_call_ends() -> None:
    # The root (0) calls its only child (1), which runs two operations, and then runs one itself.
    tensor = RecordedTensor((2,), (1,), "float32", 8)
    operations = operation(1, 0, 1), operation(1, 1, 2), operation(0, 2, 3), operation(0, 3, 4)
    calls = ModuleCall(0, -1), ModuleCall(1, 0)
    recorded = OperationsRecorded(0.0, 1, (tensor,) * 5, operations, (4,), calls)
    assert freed_after(recorded) == [[], [1], [2], [0, 3]]


def test_storages_count_once_and_until_they_are_freed() -> None:
    live = LiveBytes()
    first = torch.empty(4, device="meta")
    live.add(first)
    live.add(first[:2])
    assert (live.now, live.peak) == (16, 16)
    with live.entered():
        second = first + 1.0
    assert (live.now, live.peak) == (32, 32)
    del first
    assert live.restart() == 32
    assert (live.now, live.peak) == (16, 16)
    live.leave_out(torch.empty(9, device="meta"))
    assert live.peak == 16
    del second
    assert live.now == 0


@pytest.fixture
def logged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let profiles consist of what was logged: the total of the tests' allocator never changes."""
    monkeypatch.setattr(AllocationLog, "measured", lambda _, total: None)


def profiled(
    name: str, trains: frozenset[int] | None, checkpointed: Collection[str] = (), loop: str = CLEARED_FIRST
) -> tuple[Watched, nn.Module, ev.StepMemoryProfiled]:
    """Train a specimen in which these parameters train (None: as it is), and profile the last step.

    The forward of the modules with these paths is checkpointed as a script does it.
    """
    specimen = SPECIMENS[name]()
    for path in checkpointed:
        module = specimen.model.get_submodule(path)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    for index, parameter in enumerate(specimen.model.parameters()):
        parameter.requires_grad_(parameter.requires_grad if trains is None else index in trains)
    run = profiled_run(specimen.model, specimen.batch, specimen.loss, loop)
    return run, specimen.model, run.all(ev.StepMemoryProfiled)[-1]


def peak(forecaster: Forecaster, asked: ForecastAsked) -> int:
    answer = forecaster.with_peak(forecaster.answer(asked), asked)
    assert answer.peak is not None
    assert asked.peaks is not None
    return asked.peaks.highest[1] + answer.peak


CHECKPOINTED = [
    ("tied_gpt", ["blocks.0"]),
    ("tied_gpt", ["blocks.1"]),
    ("tied_gpt", ["blocks.0", "blocks.1"]),
    ("tied_gpt", ["blocks.0.mlp", "blocks.1.mlp"]),
    ("transformer_encoder", ["layers.0"]),
    ("transformer_encoder", ["layers.1"]),
    ("transformer_encoder", ["layers.0", "layers.1"]),
    ("conv_batchnorm", ["5"]),
]
"""A specimen, and the modules of it that are checkpointed together."""


def gradients_of(model: nn.Module, trains: frozenset[int]) -> int:
    return sum(each.nbytes for index, each in enumerate(model.parameters()) if index in trains)


@pytest.mark.usefixtures("logged_alone")
@pytest.mark.parametrize(
    ("name", "loop", "choices"),
    combinations(
        ["tied_gpt", "transformer_encoder", "conv_batchnorm", "inplace_residual", "lora", "lstm"],
        LOOPS,
        nightly((slice(0, None, 2), slice(1, None, 2)), (slice(None),)),
    ),
)
def test_change_of_peak_is_within_two_percent(name: str, loop: str, choices: slice) -> None:
    """Each specimen has five of the ten choices in turn, and nightly all."""
    run, model, _ = profiled(name, None, loop=loop)
    asked = asked_of(run.state)
    trains_now = frozenset(index for index, each in enumerate(model.parameters()) if each.requires_grad)
    parameters = sum(each.nbytes for each in model.parameters())
    forecaster, checked = Forecaster(), 0
    # An allocator that keeps peaks gives one of each phase.
    assert asked.peaks is not None
    of_phases = replace(asked.peaks, backward_of_models=None, backward_of_loss=None)
    for chosen, trains in [*patterns(model).items()][choices]:
        change = Change(tuple(sorted(trains_now - trains)), tuple(sorted(trains - trains_now)))
        traced = profiled(name, trains, loop=loop)[2]
        # What the process holds before training is no part of the step; the gradients of the step before are.
        found, start = traced.peak - START, START
        if loop in BEGIN_WITH_GRADIENTS:
            found, start = found + gradients_of(model, trains), start - gradients_of(model, trains_now)
        # 64 bytes are the smallest tensors of these models.
        for known, share in ((asked.peaks, 0.02), (of_phases, 0.04)):
            expected = pytest.approx(found, abs=max(64, share * (found + parameters)))
            assert peak(forecaster, replace(asked, peaks=known, change=change)) - start == expected, chosen
        checked += 1
    assert checked == nightly(5, 10)


@pytest.mark.usefixtures("logged_alone")
@pytest.mark.parametrize(("modules", "loop"), combinations(CHECKPOINTED, LOOPS))
def test_so_is_that_with_checkpointed_modules(modules: tuple[str, list[str]], loop: str) -> None:
    name, paths = modules
    run, model, _ = profiled(name, None, loop=loop)
    chosen = frozenset(index for index, module in enumerate(run.state.tree.modules) if module.path in paths)
    predicted = peak(Forecaster(), replace(asked_of(run.state), change=Change(checkpoints=chosen))) - START
    traced = profiled(name, None, paths, loop)[2]
    found = traced.peak - START
    parameters = sum(each.nbytes for each in model.parameters())
    assert predicted == pytest.approx(found, abs=0.02 * (found + parameters))
