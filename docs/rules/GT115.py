"""GT115: two optimizers own the same parameters. With the argument `fixed` each has its own."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
of_model = torch.optim.SGD((model[0] if "fixed" in sys.argv else model).parameters(), lr=0.01)
of_head = torch.optim.SGD(model[2].parameters(), lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    of_model.zero_grad()
    of_head.zero_grad()
    loss.backward()
    of_model.step()
    of_head.step()
