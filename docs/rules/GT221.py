"""GT221: one zero too many makes the head learn a thousand times slower. With the argument `fixed` both groups learn."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({"body": nn.Sequential(nn.Linear(16, 32), nn.ReLU()), "head": nn.Linear(32, 1)})
optimizer = torch.optim.AdamW(
    [
        {"params": model["body"].parameters()},
        {"params": model["head"].parameters(), "lr": 0.001 if "fixed" in sys.argv else 1e-7},
    ],
    lr=0.001,
)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model["head"](model["body"](inputs)), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
