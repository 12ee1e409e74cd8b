"""GT211: a model rounds its features. With the argument `fixed` the gradient passes the rounding by."""

import sys

import torch
from torch import nn


class Round(nn.Module):
    """Round to whole numbers."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if "fixed" in sys.argv:
            return inputs + (inputs.round() - inputs).detach()
        return inputs.round()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), Round(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16) * 2
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
