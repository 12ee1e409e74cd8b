"""Rows that a command freezes keep their bits and those of their optimizer state, and the other rows train as ever."""

# Modules, parameters and optimizers are more loosely typed in torch than a test uses them.
# mypy: disable-error-code="operator,union-attr,index,arg-type,assignment,attr-defined,no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toggling import answers
from torch import nn
from watched import Watched, watched

from gradtui.protocol.commands import SetRowsTrainable
from gradtui.protocol.events import FreezeVerified

TOKENS = torch.tensor([[0, 3, 5, 7], [7, 1, 2, 6], [4, 4, 0, 7]])
FROZEN = slice(0, 5)
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1, amsgrad=True),
    "adamw one by one": lambda p: torch.optim.AdamW(p, 0.05, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.05, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.05, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
}


class Words(nn.Module):
    """An embedding that is also the weight of the output layer."""

    def __init__(self, *, sparse: bool = False, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(8, 4, sparse=sparse)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(self.embed(tokens))))


def rows(path: str, rows: str = "0:5", trainable: bool = False) -> Callable[[int], SetRowsTrainable]:
    return lambda id_: SetRowsTrainable(id_, path, trainable, rows)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, clip: float = 0.0, to_none: bool = True) -> None:
    optimizer.zero_grad(set_to_none=to_none)
    model(TOKENS).square().mean().backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def state_of(optimizer: torch.optim.Optimizer, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in optimizer.state[weight].items() if value.shape == weight.shape}


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    at: dict[int, list[Any]],
    steps: int = 16,
    one: Callable[..., None] = step,
    budget: float = 100.0,
) -> Watched:
    with watched(budget=budget) as seen:
        for number in range(steps):
            for make in at.get(number, []):
                seen.submit(make)
            one(model, optimizer)
    return seen


def one_by_hand(model: Words, optimizer: torch.optim.Optimizer, clip: float = 0.0) -> None:
    """The same in plain torch: the frozen rows train too, and are put back with their state."""
    weight = model.embed.weight
    optimizer.zero_grad()
    model(TOKENS).square().mean().backward()
    weight.grad[FROZEN] = 0
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    with torch.no_grad():
        kept, state = weight.clone(), state_of(optimizer, weight)
        optimizer.step()
        weight[FROZEN] = kept[FROZEN]
        for name, value in state.items():
            optimizer.state[weight][name][FROZEN] = value[FROZEN]


@pytest.mark.parametrize("budget", [100.0, 0.0])
@pytest.mark.parametrize("maker", MAKERS)
def test_frozen_rows_keep_their_bits_and_the_others_train_as_in_plain_torch(maker: str, budget: float) -> None:
    model, other = Words(), Words()
    optimizer, plain = MAKERS[maker](model.parameters()), MAKERS[maker](other.parameters())
    weight = model.embed.weight
    for _ in range(3):
        step(model, optimizer)
        step(other, plain)
    before, state = weight.detach().clone(), state_of(optimizer, weight)
    seen = train(model, optimizer, {0: [rows("embed.weight")]}, budget=budget)
    for _ in range(16):
        one_by_hand(other, plain)
    assert torch.equal(weight[FROZEN], before[FROZEN])
    assert not torch.equal(weight[5:], before[5:])
    for name, value in state_of(optimizer, weight).items():
        assert torch.equal(value[FROZEN], state[name][FROZEN]), name
    for one, two in zip(model.parameters(), other.parameters()):
        assert torch.equal(one, two)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.rows, verified.steps, verified.moved) == (5, 10, ())
    assert answers(seen)[0].startswith("froze rows 0:5 of embed.weight: it trains 3 of 8 rows")


def test_clipping_counts_the_rows_that_train() -> None:
    model, other = Words(), Words()
    optimizer, plain = MAKERS["momentum"](model.parameters()), MAKERS["momentum"](other.parameters())
    train(model, optimizer, {0: [rows("embed.weight")]}, one=lambda *of: step(*of, clip=0.01))
    for _ in range(16):
        one_by_hand(other, plain, 0.01)
    assert torch.equal(model.embed.weight, other.embed.weight)
    assert torch.equal(model.body.weight, other.body.weight)
