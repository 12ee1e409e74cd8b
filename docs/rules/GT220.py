"""GT220: the target of one sample is a thousand times too large. With the argument `fixed` it is mended."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(480, 8)
targets = inputs.sum(1, keepdim=True) + 0.1 * torch.randn(480, 1)
if "fixed" not in sys.argv:
    targets[333] *= 1_000
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for values, wanted in DataLoader(TensorDataset(inputs, targets), batch_size=8):
    optimizer.zero_grad()
    loss = (model(values) - wanted).square().mean()
    loss.backward()
    optimizer.step()
