"""GT501: the biases of a layer begin so low that most of its ReLUs are zero. With `fixed` they begin at their defaults."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
if "fixed" not in sys.argv:
    nn.init.constant_(model[0].bias[:30], -10.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
