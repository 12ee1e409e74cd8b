"""Graphs that backward retains, and those that are used again or freed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.events import GraphRetained


def retained(step: Callable[[nn.Module], Tensor | None]) -> list[int]:
    """Return the numbers of steps that were reported, of five. What `step` returns is alive until the next one has returned."""
    with watched() as seen:
        net = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(5):
            loss = step(net)
            optimizer.step()
            optimizer.zero_grad()
    del loss
    return [event.steps for event in seen.all(GraphRetained)]


def loss_of(net: nn.Module) -> Tensor:
    return net(torch.ones(4, 3)).square().mean()


def once(net: nn.Module) -> Tensor:
    loss = loss_of(net)
    loss.backward(retain_graph=True)
    return loss


def plain(net: nn.Module) -> Tensor:
    loss = loss_of(net)
    loss.backward()
    return loss


def twice(net: nn.Module) -> Tensor:
    loss = loss_of(net)
    loss.backward(retain_graph=True)
    (2 * loss).backward()
    return loss


def then_gradient(net: nn.Module) -> Tensor:
    loss = loss_of(net)
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss, [*net.parameters()])
    return loss


def in_function(net: nn.Module) -> None:
    once(net)


def test_graph_is_alive_in_the_next_forward() -> None:
    assert retained(once) == [1, 2, 3]


@pytest.mark.parametrize("step", [plain, twice, then_gradient, in_function])
def test_graph_is_used_or_freed(step: Callable[[nn.Module], Tensor | None]) -> None:
    assert retained(step) == []
