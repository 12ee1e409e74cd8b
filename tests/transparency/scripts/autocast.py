"""Forward in bfloat16."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(15):
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 4, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), loss.dtype)
leave(model)
