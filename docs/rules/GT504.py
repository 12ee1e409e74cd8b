"""GT504: AdamW decays all parameters. With the argument `fixed` it decays only those with two dimensions."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))
groups = [{"params": list(model.parameters()), "weight_decay": 0.1}]
if "fixed" in sys.argv:
    groups = [
        {"params": [each for each in model.parameters() if each.dim() >= 2], "weight_decay": 0.1},
        {"params": [each for each in model.parameters() if each.dim() < 2], "weight_decay": 0.0},
    ]
optimizer = torch.optim.AdamW(groups, lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
