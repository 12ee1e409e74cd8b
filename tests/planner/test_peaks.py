"""The most bytes that are alive under another choice of what trains, against runs of models that are written that way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

import pytest
import torch
from patterns import patterns
from torch import nn
from torch.utils.checkpoint import checkpoint
from watched import Watched, watched
from zoo import SPECIMENS

from gradtui.planner import Plan, Replay
from gradtui.planner.lifetimes import freed_after
from gradtui.planner.live_bytes import LiveBytes
from gradtui.planner.peak import StepChange, peak_of
from gradtui.probe.memory.allocation_log import AllocationLog
from gradtui.protocol import events as ev
from gradtui.protocol.commands import TraceStep
from gradtui.protocol.operations import ModuleCall, Operation, OperationsRecorded, RecordedTensor, TensorNumber
from gradtui.state.step_peaks import profiled_peaks

STEPS = 4


def operation(call: int, taken: int, returned: int) -> Operation:
    return Operation("aten.neg.default", (TensorNumber(taken),), (), (returned,), True, call, call)


def test_what_a_call_takes_is_held_until_the_call_ends() -> None:
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
    name: str, trains: frozenset[int] | None, checkpointed: Collection[str] = ()
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
    optimizer = torch.optim.SGD([each for each in specimen.model.parameters() if each.requires_grad], 0.01)
    with watched() as run:
        for step in range(STEPS):
            if step == STEPS - 1:
                run.commands.submit(lambda number: TraceStep(number))
            optimizer.zero_grad()
            batch = specimen.batch(step)
            specimen.loss(specimen.model(*batch)).backward()
            optimizer.step()
    return run, specimen.model, run.all(ev.StepMemoryProfiled)[-1]


@pytest.mark.usefixtures("logged_alone")
@pytest.mark.parametrize(
    "name", ["tied_gpt", "transformer_encoder", "conv_batchnorm", "inplace_residual", "lora", "lstm"]
)
def test_the_change_of_the_peak_is_within_two_per_cent_of_the_traced_peak(name: str) -> None:
    run, model, before = profiled(name, None)
    recorded = run.all(ev.OperationsRecorded)[-1]
    replay = Replay(recorded)
    now = replay.peaks(Plan(frozenset(index for index, each in enumerate(model.parameters()) if each.requires_grad)))
    assert now is not None
    parameters = sum(each.nbytes for each in model.parameters())
    checked = 0
    for chosen, trains in patterns(model).items():
        after = replay.peaks(Plan(trains))
        assert after is not None
        traced = profiled(name, trains)[2]
        gradients = sum(
            ((index in trains) - each.requires_grad) * each.nbytes for index, each in enumerate(model.parameters())
        )
        change = StepChange(now, after, gradients, 0)
        peaks = profiled_peaks(before)
        # An allocator that keeps peaks gives one of each phase.
        of_phases = replace(peaks, backward_of_models=None, backward_of_loss=None)
        # What the process holds before training is no part of the step.
        found, start = traced.peak - traced.curve[0], before.curve[0]
        # 64 bytes are the smallest tensors of these models.
        for known, share in ((peaks, 0.02), (of_phases, 0.04)):
            expected = pytest.approx(found, abs=max(64, share * (found + parameters)))
            assert peak_of(known, change)[0] - start == expected, chosen
        checked += 1
    assert checked == 10


@pytest.mark.usefixtures("logged_alone")
@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("tied_gpt", ["blocks.0"]),
        ("tied_gpt", ["blocks.1"]),
        ("tied_gpt", ["blocks.0", "blocks.1"]),
        ("tied_gpt", ["blocks.0.mlp", "blocks.1.mlp"]),
        ("transformer_encoder", ["layers.0"]),
        ("transformer_encoder", ["layers.1"]),
        ("transformer_encoder", ["layers.0", "layers.1"]),
        ("conv_batchnorm", ["5"]),
    ],
)
def test_so_is_that_with_checkpointed_modules(name: str, paths: list[str]) -> None:
    run, model, before = profiled(name, None)
    modules = run.state.tree.modules
    replay = Replay(run.all(ev.OperationsRecorded)[-1])
    trains = frozenset(index for index, each in enumerate(model.parameters()) if each.requires_grad)
    chosen = frozenset(index for index, module in enumerate(modules) if module.path in paths)
    now, after = replay.peaks(Plan(trains)), replay.peaks(Plan(trains, chosen))
    assert now is not None
    assert after is not None
    traced = profiled(name, None, paths)[2]
    predicted = peak_of(profiled_peaks(before), StepChange(now, after, 0, 0))[0] - before.curve[0]
    found = traced.peak - traced.curve[0]
    parameters = sum(each.nbytes for each in model.parameters())
    assert predicted == pytest.approx(found, abs=0.02 * (found + parameters))
