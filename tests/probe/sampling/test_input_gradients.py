"""Inputs that require a gradient in front of frozen modules: when that is reported, and what else needs such a gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.protocol.events import InputGradientUnused

ROWS, WIDTH = 32, 16
STEPS = 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.frozen(x))


Train = Callable[[Net, Tensor], object]


def plainly(net: Net, x: Tensor) -> None:
    net(x.requires_grad_()).square().sum().backward()


def twice(net: Net, x: Tensor) -> None:
    plainly(net, x)
    plainly(net, torch.randn(ROWS, WIDTH))


def without_gradient_of_the_input(net: Net, x: Tensor) -> None:
    net(x).square().sum().backward()


def attacked(net: Net, x: Tensor) -> None:
    plainly(net, x)
    assert x.grad is not None
    net.zero_grad()
    net(x.detach() + 0.1 * x.grad.sign()).square().sum().backward()


def with_a_penalty(net: Net, x: Tensor) -> None:
    output = net(x.requires_grad_())
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    (output.square().sum() + slope.square().sum()).backward()


def read_by_grad(net: Net, x: Tensor) -> None:
    output = net(x.requires_grad_())
    torch.autograd.grad(output.sum(), x, retain_graph=True)
    output.square().sum().backward()


def with_a_hook(net: Net, x: Tensor) -> None:
    x.requires_grad_().register_hook(lambda gradient: None)
    net(x).square().sum().backward()


def checkpointed(net: Net, x: Tensor) -> None:
    net.head(checkpoint(net.frozen, x.requires_grad_(), use_reentrant=True)).square().sum().backward()


def through_what_trains(net: Net, x: Tensor) -> None:
    net.frozen.requires_grad_(True)
    plainly(net, x)


def for_nothing_else(net: Net, x: Tensor) -> None:
    """Attack a model of which nothing trains."""
    net.requires_grad_(False)
    plainly(net, x)


def found_after(train: Train, *, keeps: bool = False) -> list[InputGradientUnused]:
    torch.manual_seed(0)
    kept = []
    with watched() as seen:
        net = Net()
        optimizer = torch.optim.SGD(net.head.parameters(), lr=0.01)
        for _ in range(STEPS):
            x = torch.randn(ROWS, WIDTH)
            if keeps:
                kept.append(x)
            optimizer.zero_grad()
            train(net, x)
            optimizer.step()
    return seen.all(InputGradientUnused)


@pytest.mark.parametrize("train", [plainly, twice])
def test_backward_to_inputs_that_are_freed(train: Train) -> None:
    found = found_after(train)
    # The input of the last step is alive until the end.
    assert [each.step for each in found] == [*range(1, STEPS)]
    assert found[0].modules == ("frozen.0", "frozen.1", "frozen.2", "frozen.3")
    # Of the two results of Tanh the head needs the second as its input. Frozen linear modules keep their weights only.
    assert found[0].bytes == ROWS * WIDTH * 4
    assert found[0].saved == 2 * ROWS * WIDTH * 4 + ROWS * 2 * 4


@pytest.mark.parametrize(
    "train",
    [
        without_gradient_of_the_input,
        attacked,
        with_a_penalty,
        read_by_grad,
        with_a_hook,
        checkpointed,
        through_what_trains,
        for_nothing_else,
    ],
)
def test_gradients_of_inputs_that_something_needs(train: Train) -> None:
    assert found_after(train) == []


def test_inputs_that_live_on() -> None:
    assert found_after(plainly, keeps=True) == []
