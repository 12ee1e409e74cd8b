"""GT801: the resumed run makes its optimizer anew after it has loaded the state. With the argument `fixed` before."""

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


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


model = net()
optimizer = torch.optim.Adam(model.parameters())
train(model, optimizer)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)

checkpoint = torch.load(file)
model = net()
model.load_state_dict(checkpoint["model"])
optimizer = torch.optim.Adam(model.parameters())
optimizer.load_state_dict(checkpoint["optimizer"])
if "fixed" not in sys.argv:
    optimizer = torch.optim.Adam(model.parameters())
train(model, optimizer)
