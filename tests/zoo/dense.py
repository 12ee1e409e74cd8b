"""Specimens without attention: dense, convolutional, recurrent, and the containers people put them in."""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn

from zoo.specimen import Specimen, floats, mean_square, seeded


def small_mlp() -> nn.Sequential:
    """8 inputs, 4 outputs."""
    return nn.Sequential(OrderedDict(fc1=nn.Linear(8, 16), act=nn.ReLU(), fc2=nn.Linear(16, 4)))


@seeded
def mlp() -> Specimen:
    return Specimen("mlp", small_mlp(), floats(6, 8), mean_square)


@seeded
def conv_batchnorm() -> Specimen:
    """Its running statistics move in every training forward, whatever requires_grad says."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    return Specimen("conv_batchnorm", model, floats(6, 1, 8, 8), mean_square)


@seeded
def dropout() -> Specimen:
    """Each training forward draws from the global generator, so a draw too many shows in its weights."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4))
    return Specimen("dropout", model, floats(6, 8), mean_square)


class SharedTwice(nn.Module):
    """One layer called twice in a forward, and listed under two names in the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = self.first
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        return cast("Tensor", self.head(torch.tanh(self.second(x))))


@seeded
def shared_module() -> Specimen:
    return Specimen("shared_module", SharedTwice(), floats(6, 8), mean_square)


class Containers(nn.Module):
    """A ModuleDict of ModuleLists of ModuleDicts, with names that need care in a path."""

    def __init__(self) -> None:
        super().__init__()
        stage = {"conv-like": nn.Linear(8, 8), "act": nn.GELU()}
        self.stages = nn.ModuleDict(
            {
                "encoder": nn.ModuleList([nn.ModuleDict(stage), nn.ModuleDict({"0": nn.Linear(8, 8)})]),
                "heads": nn.ModuleList([nn.ModuleList([nn.Linear(8, 4)]), nn.ModuleList()]),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        for stage in cast("nn.ModuleList", self.stages["encoder"]):
            for layer in cast("nn.ModuleDict", stage).values():
                x = layer(x)
        heads = cast("nn.ModuleList", self.stages["heads"])
        return torch.stack([head(x) for group in heads for head in cast("nn.ModuleList", group)]).sum(0)


@seeded
def containers() -> Specimen:
    return Specimen("containers", Containers(), floats(6, 8), mean_square)


class InplaceResidual(nn.Module):
    """An in-place ReLU and a `+=` on the residual, which a full backward hook on these modules would break."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.relu(self.conv1(x)))
        y += x
        return cast("Tensor", self.relu(y))


@seeded
def inplace_residual() -> Specimen:
    model = nn.Sequential(InplaceResidual(), InplaceResidual(), nn.Flatten(), nn.Linear(4 * 4 * 4, 4))
    return Specimen("inplace_residual", model, floats(6, 4, 4, 4), mean_square)


@seeded
def lstm() -> Specimen:
    """Returns a tuple in a tuple: (output, (h, c))."""
    model = nn.LSTM(8, 16, num_layers=2, batch_first=True)
    return Specimen("lstm", model, floats(6, 5, 8), lambda out: mean_square(out[0]))


class Nest(nn.Module):
    """A module within a module, `depth` levels down to a linear layer; each level owns one parameter."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.inner: nn.Module = Nest(depth - 1) if depth > 1 else nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.gain * self.inner(x))


@seeded
def nested_200() -> Specimen:
    """Deep enough that each frame added to a module's call counts against Python's recursion limit."""
    return Specimen("nested_200", Nest(200), floats(6, 8), mean_square)
