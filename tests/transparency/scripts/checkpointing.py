"""Both kinds of activation checkpointing, with dropout in the region."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
from torch.utils.checkpoint import checkpoint

blocks = nn.ModuleList(nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.Dropout(0.1)) for _ in range(4))
optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-3)
for step in range(12):
    optimizer.zero_grad()
    hidden = torch.randn(8, 12, requires_grad=True)
    for number, block in enumerate(blocks):
        hidden = checkpoint(block, hidden, use_reentrant=number % 2 == 0)
    loss = hidden.square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
leave(blocks)
