"""A module that is called while another one is constructed belongs to loading."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.protocol.vocabulary import Phase


def with_wrapper(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def outer(*args: Any) -> None:
        function(*args)

    return outer


class Prompt(nn.Module):
    """Embeds its first tokens in its constructor, as CoOp's prompt learner does."""

    def __init__(self, embedding: nn.Embedding, *, records: bool) -> None:
        super().__init__()
        with torch.set_grad_enabled(records):
            self.register_buffer("prefix", embedding(torch.arange(3)).detach())
        self.fc = nn.Linear(8, 1)

    def forward(self) -> Tensor:
        result: Tensor = self.fc(self.prefix)
        return result


class WrappedPrompt(Prompt):
    @with_wrapper
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__(embedding, records=False)


def train(make: Callable[[nn.Embedding], nn.Module]) -> Watched:
    with watched() as seen:
        model = make(nn.Embedding(10, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            model().sum().backward()
            optimizer.step()
    return seen


@pytest.mark.parametrize(
    "make", [functools.partial(Prompt, records=False), functools.partial(Prompt, records=True), WrappedPrompt]
)
def test_call_within_constructor_is_no_forward(make: Callable[[nn.Embedding], nn.Module]) -> None:
    seen = train(make)
    assert seen.phases[:2] == ["load", "forward"]
    assert not seen.ledgers(Phase.EVAL)
    assert [ledger.step for ledger in seen.ledgers(Phase.FORWARD)] == [1, 2]
    assert [model.type_name for model in seen.state.tree.models] == [type(make(nn.Embedding(10, 8))).__name__]


def test_same_call_outside_of_constructor_is_evaluation() -> None:
    embedding = nn.Embedding(10, 8)
    with watched() as seen:
        with torch.no_grad():
            embedding(torch.arange(3))
        nn.Linear(8, 1)(torch.ones(1, 8)).sum().backward()
    assert "eval" in seen.phases


def test_training_constructor_is_seen_from_first_backward() -> None:
    class Trains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(self.fc.parameters(), 0.1)
            for _ in range(3):
                self.fc(torch.ones(1, 2)).sum().backward()
                optimizer.step()

    with watched() as seen:
        Trains()
    assert (seen.state.step, seen.state.micro_steps) == (3, 3)
    assert seen.ledgers(Phase.FORWARD)
