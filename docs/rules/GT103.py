"""GT103: a layer is frozen between backward and step. With the argument `fixed` its gradient is cleared."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(60):
    inputs = torch.randn(8, 16)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = None
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    if step == 10:
        model[0].requires_grad_(False)
        if "fixed" in sys.argv:
            model[0].zero_grad()
    optimizer.step()
