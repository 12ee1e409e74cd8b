"""GT214: the last layer steps no more, and its gradients fill the limit. With `fixed` the other layer is clipped alone."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
first, second = (torch.optim.SGD(model[index].parameters(), lr=0.001) for index in (2, 0))

for step in range(80):
    optimizer, layer = (first, model[2]) if step < 3 else (second, model[0])
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), 30 * inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    clipped = layer if "fixed" in sys.argv else model
    nn.utils.clip_grad_norm_(clipped.parameters(), 1.0)
    optimizer.step()
