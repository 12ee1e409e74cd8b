"""GT104: a frozen backbone with BatchNorm is in train mode. With the argument `fixed` it is in eval mode."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())
backbone.requires_grad_(False)
model = nn.Sequential(backbone, nn.Linear(32, 1))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)

model.train()
if "fixed" in sys.argv:
    backbone.eval()
for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
