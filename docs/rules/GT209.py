"""GT209: in sample 67 two points are equal, and the derivative of their distance is 1 / 0. With the argument `fixed` a small
number is added.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
least = 1e-12 if "fixed" in sys.argv else 0.0

points, others = torch.randn(80, 16), torch.randn(80, 16)
others[67] = points[67]
batches = DataLoader(TensorDataset(points, others), batch_size=4)

for _ in range(3):
    for one, other in batches:
        distance = ((model(one) - model(other)).square().sum(1) + least).sqrt()
        loss = (distance - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
