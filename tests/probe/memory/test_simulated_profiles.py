"""The profile of a step's memory on a simulated CUDA device, by how the script trains: its peak is that of the allocator."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer
from torch.utils.checkpoint import checkpoint

from gradtui.protocol.commands import TraceStep
from gradtui.protocol.events import CommandRejected, StepMemoryProfiled
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import no_profile_text, refusals

pytestmark = pytest.mark.fake_cuda

WIDTH, STEPS = 256, 5
ACTIVATION = 512 * 4 * WIDTH * 2
"""Bytes of what the wide layer of a block returns in half precision."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return y


class Net(nn.Module):
    def __init__(self, checkpointing: bool | None = None) -> None:
        """`checkpointing`: whether checkpoints are reentrant; None for none."""
        super().__init__()
        self.blocks, self.checkpointing = nn.ModuleList(Block() for _ in range(4)), checkpointing

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if self.checkpointing is None else checkpoint(block, x, use_reentrant=self.checkpointing)
        return x


def half() -> AbstractContextManager[object]:
    return torch.autocast("cuda", dtype=torch.bfloat16)


def profiled(
    model: nn.Module,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    *,
    kind: type[Optimizer] = Adam,
    scales: bool = False,
) -> tuple[Watched, dict[str, int]]:
    """Train, with a profile of the last step; return the allocator's statistics of that step too."""
    x = torch.zeros(512, WIDTH, device="cuda", requires_grad=True)
    optimizer, scaler = kind(model.parameters(), lr=0.01), GradScaler("cuda", enabled=scales)
    with watched() as run:
        for step in range(STEPS):
            if step == STEPS - 1:
                run.commands.submit(lambda number: TraceStep(number))
                torch.cuda.reset_peak_memory_stats()
            optimizer.zero_grad()
            with around():
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return run, torch.cuda.memory_stats()


def profile_of(run: Watched, stats: dict[str, int]) -> StepMemoryProfiled:
    """Return the last profile, whose peaks are those of the allocator."""
    profile = run.all(StepMemoryProfiled)[-1]
    assert (profile.step, profile.whole) == (STEPS, True)
    assert profile.peak == stats["requested_bytes.all.peak"]
    assert profile.in_blocks is not None
    # The allocator leaves small rests with large blocks.
    assert profile.in_blocks.highest[1] == pytest.approx(stats["allocated_bytes.all.peak"], rel=0.01)
    assert [phase for phase, _ in profile.phases if phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)] == [
        Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER,
    ]  # fmt: skip
    return profile


def highest(profile: StepMemoryProfiled, phase: Phase) -> int:
    assert profile.in_blocks is not None
    return max(total for each, total in profile.in_blocks.phases if each is phase)


@pytest.mark.parametrize("scales", [False, True])
def test_under_autocast(scales: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(_scaler: GradScaler, optimizer: Optimizer, _state: dict[str, object]) -> None:
        optimizer.step()

    # The device computes nothing: what lies in memory would decide whether the scaler leaves a step out.
    monkeypatch.setattr(GradScaler, "_maybe_opt_step", step)
    run, stats = profiled(Net().cuda(), half, kind=SGD, scales=scales)
    profile = profile_of(run, stats)
    (first,) = [index for index, each in enumerate(run.state.tree.modules) if each.path == "blocks.0.up"]
    # In half precision: its result, and the copies of its input and weight.
    copies = 512 * WIDTH * 2, WIDTH * 4 * WIDTH * 2
    kept = [
        (each.bytes, each.tensors) for each in profile.holdings if (each.module, each.kind) == (first, "activations")
    ]
    assert kept == [(ACTIVATION + sum(copies), 3)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_with_checkpoints_of_the_script(reentrant: bool) -> None:
    plain = profile_of(*profiled(Net().cuda()))
    profile = profile_of(*profiled(Net(reentrant).cuda()))
    # Three of the four blocks keep neither their two wide tensors nor others at the end of the forward.
    saved = highest(plain, Phase.FORWARD) - highest(profile, Phase.FORWARD)
    assert saved >= 3 * 2 * 2 * ACTIVATION
    # Backward computes one block after the other again.
    assert highest(profile, Phase.BACKWARD) > highest(profile, Phase.FORWARD)


@pytest.mark.usefixtures("process_group")
def test_within_distributed_data_parallel() -> None:
    assert "MASTER_ADDR" not in os.environ
    profile = profile_of(*profiled(DistributedDataParallel(Net().cuda())))
    assert profile.peak_module >= 0 or profile.peak_phase is Phase.OPTIMIZER


def test_graph_replay_has_no_profile_and_says_why() -> None:
    model, x = Net().cuda(), torch.zeros(512, WIDTH, device="cuda")
    optimizer = Adam(model.parameters(), capturable=True)

    def step() -> None:
        square_step(model, optimizer, x)

    with watched() as run:
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            step()
        before = len(run.all(StepMemoryProfiled))
        for _ in run.steps(6, {3: lambda number: TraceStep(number)}):
            graph.replay()
    (refused,) = run.all(CommandRejected)
    assert refused.reason == refusals.GRAPH_ALLOCATES_NOTHING
    assert len(run.all(StepMemoryProfiled)) == before
    run.state.step_profile = None
    assert refusals.GRAPH_ALLOCATES_NOTHING in no_profile_text(run.state)
