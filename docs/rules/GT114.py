"""GT114: backward runs through the target network too. With the argument `fixed` that runs under no_grad."""

import contextlib
import copy
import sys

import torch
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=0.001)

for step in range(60):
    now, later, reward = torch.randn(16, 8), torch.randn(16, 8), torch.randn(16)
    with torch.no_grad() if "fixed" in sys.argv else contextlib.nullcontext():
        expected = reward + 0.9 * target(later).max(1).values
    loss = nn.functional.mse_loss(online(now)[:, 0], expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(online.state_dict())
