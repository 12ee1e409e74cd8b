"""Small trainings of which a step is recorded, and its repetition under a plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.planner import Replay
from gradtui.protocol import events as ev
from gradtui.protocol.commands import TraceStep
from helpers.watched import Watched, watched

STEPS = 3
BATCH = torch.linspace(-1, 1, 24).view(3, 8)
ACTIVATION = 3 * 8 * 4
"""Bytes of what each layer takes and returns."""


def train(model: nn.Module, loss: Callable[[int], Tensor]) -> Watched:
    """Train a few steps, the last of which is recorded."""
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], 0.01)
    with watched() as run:
        for step in run.steps(STEPS, {STEPS - 1: lambda number: TraceStep(number)}):
            optimizer.zero_grad()
            loss(step).backward()
            optimizer.step()
    return run


def replay_of(run: Watched) -> tuple[Replay, ev.OperationsRecorded, int]:
    """Return the repetition of the step that was recorded last, and what autograd kept in it."""
    recorded = run.all(ev.OperationsRecorded)[-1]
    assert not recorded.missing
    measured = next(each.total for each in run.all(ev.SavedBytesMeasured) if each.step == recorded.step)
    return Replay(recorded), recorded, measured


def trainable(model: nn.Module) -> frozenset[int]:
    return frozenset(index for index, each in enumerate(model.parameters()) if each.requires_grad)


class Doubled(torch.autograd.Function):
    """An operation whose code torch runs without recording it."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.mul(2.0)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return gradient * 2.0


class Blocks(nn.Module):
    """Four linear layers of 8 x 8 with a nonlinearity that keeps its result, and something between the second and the third."""

    def __init__(
        self, between: Callable[[Tensor], Tensor] | None = None, checkpointed: frozenset[int] = frozenset()
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))
        self.between, self.checkpointed = between, checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for index, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if index in self.checkpointed else block(x)
            x = self.between(x) if self.between is not None and index == 1 else x
        return x
