"""GT711: anomaly detection was left on. With the argument `fixed` it is off."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with torch.autograd.set_detect_anomaly("fixed" not in sys.argv):
    for _ in range(40):
        inputs = torch.randn(8, 16)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
