"""Floating-point operations of a step, against the arithmetic of its layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.events import OperationsRecorded


def recorded(model: nn.Module, x: Tensor, micro_steps: int = 1) -> OperationsRecorded:
    with watched(budget=100.0) as seen:
        optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1e-3)
        for _ in range(8):
            for _ in range(micro_steps):
                model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen.all(OperationsRecorded)[-1]


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


PRODUCTS = [2 * 16 * taken * returned for taken, returned in ((32, 64), (64, 48), (48, 10))]
"""2 m n k of each layer with 16 samples."""


@pytest.mark.parametrize("micro_steps", [1, 3])
def test_a_perceptron(micro_steps: int) -> None:
    event = recorded(perceptron(), torch.randn(16, 32), micro_steps)
    # Backward has a product for each weight, and one for the input of each layer but the first.
    assert event.flops == (("float32", micro_steps * (3 * sum(PRODUCTS) - PRODUCTS[0])),)
    assert not event.has_more_flops


def test_frozen_layer_needs_no_gradient_of_its_weight() -> None:
    model = perceptron()
    model[2].requires_grad_(False)
    event = recorded(model, torch.randn(16, 32))
    assert event.flops == (("float32", 3 * sum(PRODUCTS) - PRODUCTS[0] - PRODUCTS[1]),)


def test_a_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.Flatten(), nn.Linear(8 * 36, 5))
    event = recorded(model, torch.randn(4, 3, 8, 8))
    # Each of 6 × 6 results of 8 channels adds up 3 × 3 × 3 products.
    convolution, linear = 2 * 4 * 8 * 36 * 27, 2 * 4 * 8 * 36 * 5
    assert event.flops == (("float32", 2 * convolution + 3 * linear),)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.queries(x).view(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(*parts)


def test_attention() -> None:
    event = recorded(Attention(), torch.randn(4, 10, 16))
    linear = 2 * 40 * 16 * 48
    # Two products forward and four backward of 10 × 8 with 8 × 10 elements, in 2 heads of 4 samples.
    assert event.flops == (("float32", 2 * linear + 6 * 8 * 2 * 10 * 8 * 10),)


def test_mixed_precision_by_dtype() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                x = self.low(x)
            return self.high(x.float())

    event = recorded(Mixed(), torch.randn(2, 8))
    assert event.flops == (("bfloat16", 2 * 2 * 2 * 8 * 8), ("float32", 3 * 2 * 2 * 8 * 4))


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, torch.zeros(32, 4)


class WithOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = Own.apply(x, self.weight)
        return result


@pytest.mark.parametrize("make", [WithOwn, lambda: nn.Sequential(Recurrent(), nn.Linear(8, 2))])
def test_what_cannot_be_counted_is_said(make: Callable[[], nn.Module]) -> None:
    model = make()
    assert recorded(
        model, torch.randn(3, 5, 32) if isinstance(model, nn.Sequential) else torch.randn(3, 32)
    ).has_more_flops


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(32, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.cells(x)[0]
        return result
