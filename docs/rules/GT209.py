"""GT209: at step 40 two points are equal, and the derivative of their distance is 0 / 0. With the argument `fixed` a small
number is added.
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
least = 1e-12 if "fixed" in sys.argv else 0.0

for step in range(60):
    one, other = torch.randn(8, 16), torch.randn(8, 16)
    if step == 40:
        other[0] = one[0]
    distance = ((model(one) - model(other)).square().sum(1) + least).sqrt()
    loss = (distance - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
