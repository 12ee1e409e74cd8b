"""Weights of an embedding and of a linear module that begin with equal values: what is reported once they differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.events import WeightsUntied


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(tokens)).tanh())


def copied(model: Language) -> None:
    model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())


def tied(model: Language) -> None:
    model.head.weight = model.embedding.weight


def over_one_storage(model: Language) -> None:
    model.head.weight = nn.Parameter(model.embedding.weight.detach())


def constant(model: Language) -> None:
    for weight in (model.embedding.weight, model.head.weight):
        nn.init.constant_(weight, 0.5)


def frozen_copy(model: Language) -> None:
    copied(model)
    model.embedding.weight.requires_grad_(False)


def found_after(prepare: Callable[[Language], None], steps: int = 3) -> list[WeightsUntied]:
    torch.manual_seed(0)
    with watched() as seen:
        model = Language()
        prepare(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.arange(20)).logsumexp(1).sum().backward()
            optimizer.step()
    return seen.all(WeightsUntied)


def test_a_copy_that_drifts_apart_is_reported_once() -> None:
    (found,) = found_after(copied)
    assert (found.embedding, found.linear, found.elements) == ("embedding.weight", "head.weight", 20 * 8)
    # Step 1 begins with equal values and ends with different ones, with which step 2 begins.
    assert (found.equal_step, found.step) == (1, 2)


@pytest.mark.parametrize("prepare", [tied, over_one_storage, constant, frozen_copy, lambda model: None])
def test_other_weights_are_not_reported(prepare: Callable[[Language], None]) -> None:
    assert found_after(prepare) == []


def test_equal_weights_without_update_are_not_reported() -> None:
    assert found_after(copied, steps=1) == []
