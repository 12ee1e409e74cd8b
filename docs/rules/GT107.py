"""GT107: the head is replaced after the optimizer was made. With the argument `fixed` before it."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
if "fixed" in sys.argv:
    model[2] = nn.Linear(32, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
if "fixed" not in sys.argv:
    model[2] = nn.Linear(32, 1)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
