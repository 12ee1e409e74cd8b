"""Trains for 6,000 steps and writes how much memory the process holds, every 500 steps."""

import json

import psutil
import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
held = []
for step in range(6001):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(16, 32)), torch.randint(0, 8, (16,)))
    loss.backward()
    if step % 7 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 500 == 0:
        held.append(psutil.Process().memory_info().rss)
with open("held.json", "w") as file:
    json.dump(held, file)
print(loss.item())
