"""GT216: the resumed optimizer has its parameters in another order. With the argument `fixed` in the same."""

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


model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
train(model, optimizer)
file = io.BytesIO()
torch.save(optimizer.state_dict(), file)
file.seek(0)

layers = [model[0], model[2]] if "fixed" in sys.argv else [model[2], model[0]]
optimizer = torch.optim.Adam([parameter for layer in layers for parameter in layer.parameters()])
optimizer.load_state_dict(torch.load(file))
train(model, optimizer)
