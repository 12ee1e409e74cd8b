"""GT205: the loss is not divided by the number of accumulated batches. With the argument `fixed` it is."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = DataLoader(torch.randn(960, 16), batch_size=8)

for index, inputs in enumerate(batches):
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    if "fixed" in sys.argv:
        loss = loss / 4
    loss.backward()
    if (index + 1) % 4 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
