"""GT204: the first step applies one backward of four. With the argument `fixed` every step applies four."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
shift = 1 if "fixed" in sys.argv else 0

for index in range(120):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) / 4
    loss.backward()
    if (index + shift) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
