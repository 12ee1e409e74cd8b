"""GT212: gradients are clipped after the step. With the argument `fixed` before it."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

for _ in range(40):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), 30 * inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    if "fixed" in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if "fixed" not in sys.argv:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
