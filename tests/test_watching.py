"""`gradtui.watch`: the explicit way."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradtui


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()


def test_it_sees_what_is_trained_and_freezes_what_is_asked() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, name="net", progress=False) as watch:  # type: ignore[union-attr]
        train(model, optimizer, 3)
        watch.freeze("bias")
        train(model, optimizer, 1)
        held = model.bias.detach().clone()
        train(model, optimizer, 4)
    summary = watch.summary()
    assert torch.equal(model.bias, held)
    assert summary["models"] == [{"name": "net", "type": "Linear", "parameters": 8, "trainable": 6}]
    assert summary["steps"] == summary["micro_steps"] == 8
    assert [(entry["step"], entry["parameters"]) for entry in summary["interventions"]] == [(3, ["bias"])]


def test_closing_leaves_torch_as_it_was() -> None:
    before = nn.Module.__call__
    watch = gradtui.watch(nn.Linear(2, 2), progress=False)
    assert watch is not None
    assert nn.Module.__call__ is not before
    watch.close()
    watch.close()
    assert nn.Module.__call__ is before


def test_only_one_watch_at_a_time() -> None:
    with gradtui.watch(nn.Linear(2, 2), progress=False), pytest.raises(RuntimeError, match="another gradtui.watch"):  # type: ignore[union-attr]
        gradtui.watch(nn.Linear(2, 2))
