"""GT102: an optimizer decays parameters that have no gradient. With the argument `fixed` it skips them."""

import sys

import torch
from torch import nn


class DecayedSGD(torch.optim.SGD):
    """SGD with weight decay of its own."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if "fixed" not in sys.argv or parameter.grad is not None:
                    parameter.mul_(1 - 0.01 * group["lr"])
        super().step()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
model[0].requires_grad_(False)
optimizer = DecayedSGD(model.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
