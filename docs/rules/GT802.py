"""GT802: a layer was frozen when the training was saved, and is not when it is resumed. With the argument `fixed` it is."""

import contextlib
import io
import sys

import torch
from torch import nn

torch.manual_seed(0)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(20):
        inputs = torch.randn(32, 8)
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def net(*, frozen: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[0].requires_grad_(not frozen)
    return model, torch.optim.Adam(each for each in model.parameters() if each.requires_grad)


model, optimizer = net(frozen=True)
train(model, optimizer)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)

checkpoint = torch.load(file)
model, optimizer = net(frozen="fixed" in sys.argv)
model.load_state_dict(checkpoint["model"])
with contextlib.suppress(ValueError):
    optimizer.load_state_dict(checkpoint["optimizer"])
train(model, optimizer)
