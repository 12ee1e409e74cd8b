"""GT502: twelve layers with sigmoids, and the first ones hardly train. With the argument `fixed` each is residual."""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = torch.sigmoid(self.linear(inputs))
        return inputs + outputs if "fixed" in sys.argv else outputs


torch.manual_seed(0)
model = nn.Sequential(*(Block() for _ in range(12)), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
