"""GT706: Adam updates 400 small tensors one after the other. With the argument `fixed` all of them in one operation."""

import sys

import torch
from torch import nn


class Scales(nn.Module):
    """Many parameters of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(1) for _ in range(400))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * torch.cat(list(self.scales)).mean()


torch.manual_seed(0)
torch.set_num_threads(1)
model = Scales()
fast = "fixed" in sys.argv
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False, fused=fast)

for _ in range(120):
    inputs = torch.randn(1024, 256)
    loss = (model(inputs) - 2 * inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
