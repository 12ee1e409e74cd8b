"""Freezing and unfreezing in tests: a small model, commands by path, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gradtui.protocol.commands import (
    Command,
    RenameState,
    RunSteps,
    RunTo,
    SaveState,
    SetBreakpoint,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    TakeUpFreezes,
    TrainOnly,
    TryChange,
)
from gradtui.protocol.events import CommandApplied, CommandRejected
from helpers.watched import Watched, watched

X = torch.linspace(-1, 1, 24).view(6, 4)

Make = Callable[..., torch.optim.Optimizer]


COMMANDS: dict[type[Command], Callable[[int], Command]] = {
    SetTrainable: lambda id_: SetTrainable(id_, "0", False),
    SetRowsTrainable: lambda id_: SetRowsTrainable(id_, "0.weight", False, "0"),
    TakeUpFreezes: lambda id_: TakeUpFreezes(id_, ("0.weight",), ()),
    SetCheckpointing: lambda id_: SetCheckpointing(id_, "0", True),
    SetMode: lambda id_: SetMode(id_, "", False),
    SetGroup: lambda id_: SetGroup(id_, 0, 0, learning_rate=0.5),
    SetLearningRate: lambda id_: SetLearningRate(id_, "0", 0.5),
    TrainOnly: lambda id_: TrainOnly(id_, "0"),
    RunSteps: lambda id_: RunSteps(id_, 1),
    RunTo: lambda id_: RunTo(id_, 3),
    SetBreakpoint: lambda id_: SetBreakpoint(id_, "step", 3),
    RenameState: lambda id_: RenameState(id_, 1, "good"),
    SaveState: lambda id_: SaveState(id_, 1),
    TryChange: lambda id_: TryChange(id_, ("freeze 0",), 10),
}
"""Commands that need arguments."""


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def normed() -> nn.Sequential:
    """A model with BatchNorm layers, one of them without parameters."""
    torch.manual_seed(1)
    body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.BatchNorm1d(6, affine=False))
    return nn.Sequential(body, nn.BatchNorm1d(6), nn.Linear(6, 2))


def freeze(path: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, False)


def unfreeze(path: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, True)


def bits(model: nn.Module) -> dict[str, list[float]]:
    return {name: parameter.detach().view(-1).tolist() for name, parameter in model.named_parameters()}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, to_none: bool = True) -> None:
    optimizer.zero_grad(set_to_none=to_none)
    model(X).square().mean().backward()
    optimizer.step()


def refused(model: nn.Module, optimizers: list[torch.optim.Optimizer], make: Callable[[int], SetTrainable]) -> str:
    """Train, ask, train on; returns the answer after making sure that nothing was changed."""
    with watched() as seen:
        for number in range(4):
            for optimizer in optimizers:
                step(model, optimizer)
            if number == 1:
                flags = [p.requires_grad for p in model.parameters()]
                seen.submit(make)
    assert [p.requires_grad for p in model.parameters()] == flags
    (rejected,) = seen.all(CommandRejected)
    assert seen.all(CommandApplied) == []
    return rejected.reason


def ask(
    model: nn.Module, optimizer: torch.optim.Optimizer, at: dict[int, list[Callable[[int], SetTrainable]]]
) -> Watched:
    """Train for ten steps and submit commands before given ones. A backward with nothing to compute would raise here."""
    with watched() as seen:
        for _ in seen.steps(10, at):
            step(model, optimizer)
    return seen
