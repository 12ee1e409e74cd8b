"""GT707: each step sorts the losses of all samples so far. With the argument `fixed` only those of its own."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses: list[float] = []

for _ in range(100):
    inputs = torch.randn(8, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses += (loss.item() * torch.rand(2_000)).tolist()
    kept = losses[-2_000:] if "fixed" in sys.argv else losses
    median = sorted(kept)[len(kept) // 2]
