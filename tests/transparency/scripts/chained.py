"""An error in a forward, raised again from another: both tracebacks are the script’s own."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, inputs):
        try:
            return self.layer(inputs)
        except RuntimeError as error:
            raise ValueError(f"a batch of shape {tuple(inputs.shape)}") from error


model = nn.Sequential(Picky())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    try:
        model(torch.randn(2, 3 if step < 4 else 5)).sum().backward()
    except ValueError:
        leave(model)
        raise KeyError("no such batch")  # noqa: B904  # that it is chained by itself is the point
    optimizer.step()
