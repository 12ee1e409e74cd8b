"""GT703: a loop over time steps starts 1,300 operations in each step. With the argument `fixed` a convolution does the same."""

import sys

import torch
from torch import nn


class Smoothed(nn.Module):
    """The weighted mean of each five neighbours in a series."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(5) / 5)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        if "fixed" in sys.argv:
            return nn.functional.conv1d(series[:, None], self.weights[None, None])[:, 0]
        windows = [series[:, at : at + 5] @ self.weights for at in range(series.shape[1] - 4)]
        return torch.stack(windows, 1)


torch.manual_seed(0)
torch.set_num_threads(1)
model = Smoothed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(500):
    series = torch.randn(4, 320)
    loss = (model(series) - series[:, 2:-2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
