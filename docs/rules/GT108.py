"""GT108: the input of a frozen backbone requires a gradient that is never read. With the argument `fixed` it does not."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()).requires_grad_(False)
model = nn.Sequential(backbone, nn.Linear(64, 8))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)

for _ in range(40):
    inputs = torch.randn(256, 64)
    if "fixed" not in sys.argv:
        inputs.requires_grad_()
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
