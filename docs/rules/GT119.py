"""GT119: an averaged copy leaves the buffers out. With the argument `fixed` it copies them."""

import copy
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
average = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16) + 2
    with torch.no_grad():
        target = average(inputs)
    outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs, inputs.sum(1, keepdim=True)) + 0.1 * (outputs - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for averaged, parameter in zip(average.parameters(), model.parameters()):
            averaged.lerp_(parameter, 0.1)
        if "fixed" in sys.argv:
            for averaged, buffer in zip(average.buffers(), model.buffers()):
                averaged.copy_(buffer)
