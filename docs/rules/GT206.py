"""GT206: gradients are cleared before each of four backwards. With the argument `fixed` once per step."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for index in range(120):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) / 4
    if "fixed" not in sys.argv or index % 4 == 0:
        optimizer.zero_grad()
    loss.backward()
    if (index + 1) % 4 == 0:
        optimizer.step()
