"""What a specimen is, and the few means that the factories of the zoo share. Pure torch; knows nothing of gradtui."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Batch = Callable[[int], tuple[Tensor, ...]]
"""From a seed to the model's positional inputs: the same seed, the same bits; the global generator is left alone."""

Loss = Callable[[Any], Tensor]
"""From whatever the model returns to a scalar tensor."""


@dataclass(frozen=True)
class Specimen:
    """A small model with what is needed to train it: `loss(model(*batch(seed))).backward()`."""

    name: str
    model: nn.Module
    batch: Batch
    loss: Loss


def seeded(factory: Callable[[], Specimen]) -> Callable[[], Specimen]:
    """Makes each call return a new specimen with the same initial weights, and leaves the global generator alone."""

    @functools.wraps(factory)
    def build() -> Specimen:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return factory()

    return build


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> Batch:
    """Batches of one tensor of standard normal values."""

    def batch(seed: int) -> tuple[Tensor, ...]:
        return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype),)

    return batch


def tokens(*shape: int, below: int, count: int = 1) -> Batch:
    """Batches of `count` tensors of indices from 0 to `below` - 1."""

    def batch(seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randint(below, shape, generator=generator) for _ in range(count))

    return batch


def mean_square(output: Tensor) -> Tensor:
    """The mean of |output - 1|²: real for a complex output, and not at its minimum where the output is zero."""
    return (output - 1).abs().float().square().mean()
