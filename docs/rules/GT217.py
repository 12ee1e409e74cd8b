"""GT217: after an unfreeze the scheduler still has the former optimizer. With the argument `fixed` there is a new one too."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
model[0].requires_grad_(False)
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

for step in range(60):
    if step == 10:
        model.requires_grad_(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if "fixed" in sys.argv:
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    model.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
