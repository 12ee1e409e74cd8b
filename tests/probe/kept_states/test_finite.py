"""What counts as not finite: what would spread, and nothing that scripts put into a model on purpose."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from gradtui.probe.kept_states import not_finite


def trained(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Optimizer]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)
    optimizer = Adam(model.parameters())
    model(torch.ones(2, 3, dtype=dtype)).sum().backward()
    optimizer.step()
    return model, optimizer


def found(model: nn.Module, optimizer: Optimizer) -> list[str]:
    return not_finite([model], [optimizer])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_bad_value_of_a_weight_is_found(dtype: torch.dtype, value: float) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(300, dtype=dtype)), nn.Parameter(torch.ones(2, dtype=dtype))])
    optimizer = SGD(model.parameters(), 0.1)
    assert found(model, optimizer) == []
    with torch.no_grad():
        model[0][77] = value
    assert found(model, optimizer) == ["weights"]


def test_the_largest_numbers_are_finite() -> None:
    model, optimizer = trained(torch.float64)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.finfo(torch.float64).max)
    assert found(model, optimizer) == []


def test_state_of_an_optimizer_and_statistics_count() -> None:
    model, optimizer = trained()
    first = next(model.parameters())
    optimizer.state[first]["exp_avg_sq"][0, 0] = math.inf
    assert found(model, optimizer) == ["optimizer state"]
    model[1].running_mean[2] = math.nan  # type: ignore[index,union-attr]
    assert found(model, optimizer) == ["optimizer state", "buffers"]


def test_harmless_inf_and_bad_gradients_are_left_alone() -> None:
    model, optimizer = trained()
    model.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))
    model.register_buffer("count", torch.zeros((), dtype=torch.int64))
    model.frozen = nn.Parameter(torch.tensor([math.inf]), requires_grad=False)
    for each in model.parameters():
        each.grad = torch.full_like(each, math.nan)
    assert found(model, optimizer) == []
