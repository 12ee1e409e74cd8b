"""GT122: rows of an embedding are masked by a hook, and decay. With the argument `fixed` nothing decays."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(52, 8), nn.Flatten(), nn.Linear(24, 2))
model[2].requires_grad_(False)
mask = torch.zeros(52, 1)
mask[-2:] = 1
model[0].weight.register_hook(lambda gradient: gradient * mask)
decay = 0.0 if "fixed" in sys.argv else 0.1
optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.01, weight_decay=decay)

for _ in range(60):
    tokens = torch.randint(0, 50, (8, 3))
    tokens[:, 1] = 50 + torch.randint(0, 2, (8,))
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 1] - 50)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
