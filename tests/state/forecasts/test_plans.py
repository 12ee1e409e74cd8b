"""The plans that are offered for a run, and the best of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.elsewhere import move_moments
from helpers.fakes import started
from helpers.forecasts import asked_of
from helpers.training import square_step
from helpers.watched import Watched, watched
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradtui.planner import Forecaster
from gradtui.protocol.commands import SetCheckpointing, SetTrainable, TraceStep, TrainOnly, Undo
from gradtui.protocol.events import DeviceFound
from gradtui.protocol.forecasts import Change
from gradtui.run.reducer import apply
from gradtui.run.state.forecasts.plans import PlanOffered, figures, front, plans

COORDINATE = st.none() | st.integers(-3, 3)


@given(st.lists(st.tuples(COORDINATE, COORDINATE)))
def test_the_front_is_what_no_point_beats(points: list[tuple[int | None, int | None]]) -> None:
    def beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    known = {at: point for at, point in enumerate(points) if None not in point}
    best = {at for at, point in known.items() if not any(beats(other, point) for other in known.values())}  # type: ignore[arg-type]
    assert front([(memory, None if time is None else float(time)) for memory, time in points]) == best


class Stack(nn.Module):
    """Four blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.LayerNorm(64)) for _ in range(4))
        self.head = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def run() -> Watched:
    model, batch = Stack(), torch.linspace(-1, 1, 32 * 64).view(32, 64)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    with watched() as seen:
        for _ in seen.steps(4, {3: lambda number: TraceStep(number)}):
            square_step(model, optimizer, batch)
    return seen


def by_name(run: Watched) -> dict[str, PlanOffered]:
    return {plan.name: plan for plan in plans(run.state)}


def test_plans_cover_last_blocks_and_checkpoint_spacings(run: Watched) -> None:
    found = by_name(run)
    paths = [info.path for info in run.state.tree.parameters]
    two = found["last 2 blocks, head"]
    assert [paths[index].partition(".")[0] for index in two.change.stops] == ["blocks"] * 8
    assert {paths[index].split(".")[1] for index in two.change.stops} == {"0", "1"}
    assert [make(7) for make in two.commands] == [TrainOnly(7, ":last-2-blocks, :head")]
    assert {f"last {count} blocks, head" for count in (3, 2)} <= found.keys()
    assert {"last block, head", "head", "norms"} <= found.keys()
    second = found["as now, every 2nd block checkpointed"]
    assert [make(1) for make in second.commands] == [SetCheckpointing(1, f"blocks.{at}", True) for at in (1, 3)]
    both = found["head, checkpointed"]
    assert both.change == Change(
        found["head"].change.stops, (), found["as now, every block checkpointed"].change.checkpoints
    )
    # Everything trains and no parameter is an adapter.
    assert not {"everything", "low-rank adapters"} & found.keys()
    assert len({plan.change for plan in found.values()}) == len(found)


def test_the_figures_of_plans_come_from_the_planner(run: Watched) -> None:
    offered = plans(run.state)
    assert {each.memory for each in figures(run.state, offered)} == {None}
    forecaster = Forecaster()
    for plan in offered:
        asked = asked_of(run.state, plan.change)
        # The tests' allocator has a fixed total, which hides what backward holds.
        apply(run.state, replace(forecaster.answer(asked), peak=len(plan.commands), peak_phase=None))
    known = {each.plan.name: each for each in figures(run.state, offered)}
    assert all(each.memory is not None and each.time is not None for each in known.values())
    head = known["head"]
    checkpointed = known["as now, every block checkpointed"]
    assert head.time is not None
    assert checkpointed.time is not None
    # Without the backward of the blocks, and with their forward twice.
    assert head.time < 0.6 < 1.1 < checkpointed.time
    assert head.on_front
    assert not checkpointed.on_front


def test_state_of_what_is_frozen_can_be_dropped() -> None:
    model, batch = Stack(), torch.linspace(-1, 1, 4 * 64).view(4, 64)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    frozen = [*model.blocks[0].parameters(), model.blocks[1][0].bias]
    with watched() as seen:
        for step in range(40):
            if step == 3:
                for parameter in frozen:
                    parameter.requires_grad_(False)
            if step == 35:
                # Offloaded state would be where it is.
                (plan,) = (each for each in plans(seen.state) if each.state != "keep")
                seen.commands.submit(plan.commands[0])
            square_step(model, optimizer, batch)
    # Two moments of each, and the step counter.
    assert (plan.optimizer_state, plan.host_state) == (-sum(2 * each.nbytes + 4 for each in frozen), 0)
    command = plan.commands[0](1)
    assert command == SetTrainable(1, "blocks.0, blocks.1.0.bias", False, "drop")
    assert all(each not in optimizer.state for each in frozen)
    assert model.blocks[1][0].weight in optimizer.state
    assert all(each.state == "keep" for each in plans(seen.state))


def test_frozen_state_is_offloaded_and_undo_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = Stack(), torch.linspace(-1, 1, 4 * 64).view(4, 64)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    frozen = [*model.blocks[0].parameters(), *model.blocks[1].parameters()]
    moments, counters = sum(2 * each.nbytes for each in frozen), 4 * len(frozen)
    offered: dict[int, dict[str, PlanOffered]] = {}
    devices: dict[int, set[str]] = {}
    with watched() as seen:
        apply(seen.state, started())
        apply(seen.state, DeviceFound(0.0, 0, "NVIDIA H100", "CUDA allocator"))
        for step in range(130):
            if step == 3:
                for parameter in frozen:
                    parameter.requires_grad_(False)
                move_moments(optimizer, frozen, monkeypatch)
            if step in (35, 70, 105):
                offered[step] = {plan.state: plan for plan in plans(seen.state) if plan.state != "keep"}
                devices[step] = {optimizer.state[each]["exp_avg"].device.type for each in frozen}
            if step == 35:
                seen.commands.submit(offered[step]["offload"].commands[0])
            if step == 70:
                seen.commands.submit(Undo)
            square_step(model, optimizer, batch)
    offload, drop = offered[35]["offload"], offered[35]["drop"]
    assert offload.commands[0](1) == SetTrainable(1, "blocks.0, blocks.1", False, "offload")
    # On a device the memory of the step is the device's: the step counters are not there.
    assert (offload.optimizer_state, offload.host_state) == (-moments, moments)
    assert (drop.optimizer_state, drop.host_state) == (-moments, -counters)
    assert devices == {35: {"cuda"}, 70: {"cpu"}, 105: {"cuda"}}
    # What waits in host memory can only be dropped there.
    (left,) = offered[70].values()
    assert (left.state, left.optimizer_state, left.host_state) == ("drop", 0, -moments - counters)
    assert {plan.state: plan.optimizer_state for plan in offered[105].values()} == {
        "drop": -moments,
        "offload": -moments,
    }
    known = {each.plan.state: each for each in figures(seen.state, list(offered[35].values()))}
    assert known["offload"].memory is None, "without a forecast of the peak"


@pytest.mark.gpu
@pytest.mark.fake_cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_offloaded_state_leaves_the_device() -> None:
    """Checked on a simulated device only."""
    model, batch = Stack().cuda(), torch.linspace(-1, 1, 4 * 64, device="cuda").view(4, 64)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    frozen = [*model.blocks[0].parameters()]
    held: dict[int, int] = {}
    types: dict[int, set[str]] = {}
    with watched() as seen:
        apply(seen.state, started())
        for step in range(60):
            if step == 3:
                for parameter in frozen:
                    parameter.requires_grad_(False)
            if step == 35:
                (plan,) = (each for each in plans(seen.state) if each.state == "offload")
                seen.commands.submit(plan.commands[0])
            optimizer.zero_grad()
            if step in (34, 36):
                torch.cuda.synchronize()
                held[step] = torch.cuda.memory_allocated()
                types[step] = {optimizer.state[each]["exp_avg"].device.type for each in frozen}
            model(batch).square().mean().backward()
            optimizer.step()
    # The allocator rounds each tensor up to blocks of 512 bytes.
    moments = sum(2 * -(-each.nbytes // 512) * 512 for each in frozen)
    assert plan.optimizer_state == -plan.host_state == -sum(2 * each.nbytes for each in frozen)
    assert held[34] - held[36] == moments
    assert types == {34: {"cuda"}, 36: {"cpu"}}
