"""GT203: gradients are never cleared. With the argument `fixed` they are."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    if "fixed" in sys.argv:
        optimizer.zero_grad()
