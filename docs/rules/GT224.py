"""GT224: the function of a schedule returns a learning rate. With the argument `fixed` it returns a factor."""

import sys

import torch
from torch import nn

RATE = 0.01

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
first = 1.0 if "fixed" in sys.argv else RATE
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: first * 0.99**step)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
