"""What is frozen and lets the gradient pass may take over the training: that it will get one has been seen."""

from __future__ import annotations

import torch
from helpers.training import square_step
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.protocol.commands import TrainOnly
from gradtui.protocol.events import CommandApplied, CommandRejected


class Prompted(nn.Module):
    """A trained prompt in front of a frozen encoder, and a frozen branch that no gradient passes."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(4))
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).requires_grad_(False)
        self.images = nn.Linear(4, 2).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.encoder(x + self.prompt) * self.images(x)
        return result


def train(model: Prompted, selection: str) -> Watched:
    optimizer = torch.optim.SGD([model.prompt], lr=0.1)
    with watched() as seen:
        for _ in seen.steps(10, {4: lambda number: TrainOnly(number, selection)}):
            square_step(model, optimizer, torch.ones(3, 4))
    return seen


def test_frozen_encoder_that_let_gradient_pass_takes_over() -> None:
    torch.manual_seed(0)
    model = Prompted()
    before = model.encoder[0].weight.detach().clone()
    seen = train(model, "encoder")
    assert not seen.all(CommandRejected)
    assert len(seen.all(CommandApplied)) == 1
    assert not model.prompt.requires_grad
    assert not torch.equal(model.encoder[0].weight, before)


def test_unseen_gradient_does_not_pass() -> None:
    torch.manual_seed(0)
    model = Prompted()
    seen = train(model, "images")
    (rejected,) = seen.all(CommandRejected)
    assert "nothing would train" in rejected.reason
    assert model.prompt.requires_grad
    assert not model.images.weight.requires_grad
