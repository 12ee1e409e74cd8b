"""GT213: outliers make the norm overflow, and clipping sets all gradients to 0. With the argument `fixed` they are clamped."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(40):
    inputs = torch.randn(16, 8)
    if step % 10 == 4:
        inputs[0] *= 1e22
    if "fixed" in sys.argv:
        inputs = inputs.clamp(-10, 10)
    loss = (model(inputs) - inputs[:, :1]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
