"""GT215: Adam is made for each batch. With the argument `fixed` once."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

for _ in range(40):
    if "fixed" not in sys.argv:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
