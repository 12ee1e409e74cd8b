"""GT306: backward retains a graph that nothing uses again. With the argument `fixed` it does not."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(40):
    inputs = torch.randn(4096, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward(retain_graph="fixed" not in sys.argv)
    optimizer.step()
