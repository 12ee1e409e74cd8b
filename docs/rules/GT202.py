"""GT202: gradients are cleared between backward and step. With the argument `fixed` they are cleared after the step."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    if "fixed" not in sys.argv:
        optimizer.zero_grad()
    optimizer.step()
    if "fixed" in sys.argv:
        optimizer.zero_grad()
