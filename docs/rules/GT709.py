"""GT709: torch computes with two threads for each core. With the argument `fixed` with one."""

import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1 if "fixed" in sys.argv else 2 * (os.cpu_count() or 1))
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(60):
    # So small that torch uses one thread of them.
    inputs = torch.randn(4, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
