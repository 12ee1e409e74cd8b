"""GT218: the loop divides the loss, and so does what calls backward. With the argument `fixed` only the latter does."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
accumulated = 4
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def backward(loss):
    """As `Accelerator.backward` does."""
    (loss / accumulated).backward()


for index in range(200):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :4])
    backward(loss if "fixed" in sys.argv else loss / accumulated)
    if (index + 1) % accumulated == 0:
        optimizer.step()
        optimizer.zero_grad()
