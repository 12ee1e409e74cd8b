"""GT803: the resumed run restores its optimizer, and not its scheduler. With the argument `fixed` both."""

import io
import sys

import torch
from torch import nn

torch.manual_seed(0)

Parts = tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
    for _ in range(20):
        inputs = torch.randn(32, 8)
        loss = (model(inputs) - inputs.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


def parts() -> Parts:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)


names = "model", "optimizer", "scheduler"
training = parts()
train(*training)
file = io.BytesIO()
torch.save({name: each.state_dict() for name, each in zip(names, training)}, file)
file.seek(0)

checkpoint = torch.load(file)
resumed = parts()
for name, each in zip(names, resumed):
    if name != "scheduler" or "fixed" in sys.argv:
        each.load_state_dict(checkpoint[name])
train(*resumed)
