"""GT210: every gradient is infinite, so the GradScaler skips every step. With the argument `fixed` none is."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")

for _ in range(60):
    inputs = torch.randn(8, 16)
    error = (model(inputs) - inputs.sum(1, keepdim=True)).abs()
    if "fixed" not in sys.argv:
        error = (error * 0).sqrt()
    scaler.scale(error.mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
