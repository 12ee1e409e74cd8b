"""Specimens whose parameters are unusual: sparse gradients, complex, empty, lazy, bf16, computed from others."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from zoo.dense import small_mlp
from zoo.specimen import Specimen, floats, mean_square, seeded, tokens


@seeded
def weight_normalised() -> Specimen:
    """`weight` is computed at each access from two parameters, `parametrizations.weight.original0` and `1`."""
    model = nn.Sequential(weight_norm(nn.Linear(8, 16)), nn.ReLU(), weight_norm(nn.Linear(16, 4)))
    return Specimen("weight_normalised", model, floats(6, 8), mean_square)


@seeded
def sparse_embedding() -> Specimen:
    """The embedding's gradient is a sparse tensor, which SGD takes and Adam refuses."""
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4))
    return Specimen("sparse_embedding", model, tokens(6, 5, below=50), mean_square)


class ComplexFilter(nn.Module):
    """A learned filter in the frequency domain: a complex parameter and a complex gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.head(torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=8)))


@seeded
def complex_parameter() -> Specimen:
    return Specimen("complex_parameter", ComplexFilter(), floats(6, 8), mean_square)


class ZeroSize(nn.Module):
    """A parameter without elements, as an optional prompt of length 0 leaves behind; it does get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.empty(0, 8))
        self.body = small_mlp()

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.body(torch.cat([self.prompt, x])))


@seeded
def zero_size_parameter() -> Specimen:
    return Specimen("zero_size_parameter", ZeroSize(), floats(6, 8), mean_square)


@seeded
def lazy() -> Specimen:
    """Its weights have no shape before the first forward, which draws them from the global generator."""
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(4))
    return Specimen("lazy", model, floats(6, 8), mean_square)


@seeded
def bf16() -> Specimen:
    return Specimen("bf16", small_mlp().to(torch.bfloat16), floats(6, 8, dtype=torch.bfloat16), mean_square)
