"""Small networks, their steps, and what a training leaves behind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
"""The version of torch."""


def small_net() -> nn.Sequential:
    """A network of 4 inputs, 8 hidden units and 2 outputs. Its weights depend on the random state."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def seeded_net() -> nn.Sequential:
    """A `small_net` with the same weights each time. The random state is that of seed 0 afterwards, but for its weights."""
    torch.manual_seed(0)
    return small_net()


def square_step(model: Callable[..., Tensor], optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    """Clear the gradients, and make a step against the mean of the squared outputs."""
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def square_steps(
    model: Callable[..., Tensor],
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    steps: int,
    before: Callable[[int], object] = lambda step: None,
) -> None:
    """Make `steps` calls of `square_step`, each after a call of `before` with its number, from 0 on."""
    for step in range(steps):
        before(step)
        square_step(model, optimizer, inputs)


def loss_steps(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], steps: int) -> None:
    """Make `steps` optimizer steps: clear the gradients, call `loss`, and run backward on what it returns."""
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def bits(model: nn.Module) -> list[bytes]:
    """Return the bytes of each parameter, in order: equal lists are equal weights, to the bit."""
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
