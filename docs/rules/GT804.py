"""GT804: the checkpoint has the random state, and the resumed run does not set it. With the argument `fixed` it does."""

import io
import sys

import torch
from torch import nn


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(20):
        inputs = torch.randn(32, 8)
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    return model, torch.optim.Adam(model.parameters())


model, optimizer = parts()
train(model, optimizer)
file = io.BytesIO()
saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
torch.save(saved, file)
file.seek(0)

checkpoint = torch.load(file)
model, optimizer = parts()
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
if "fixed" in sys.argv:
    torch.set_rng_state(checkpoint["rng"])
train(model, optimizer)
