"""GT223: a schedule for epochs is stepped at each batch. With the argument `fixed` it is stepped once an epoch."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5)

for _ in range(3):
    for _ in range(20):
        inputs = torch.randn(8, 16)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "fixed" not in sys.argv:
            scheduler.step()
    if "fixed" in sys.argv:
        scheduler.step()
