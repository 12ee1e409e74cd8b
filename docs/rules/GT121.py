"""GT121: an adapter stays merged after an evaluation. With the argument `fixed` it is unmerged."""

import sys

import torch
from torch import nn


class Adapted(nn.Module):
    """A frozen layer and a low-rank update of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
        self.merged = False

    def set_merged(self, merged: bool) -> None:
        update = self.up.weight.detach() @ self.down.weight.detach()
        self.base.weight += update if merged else -update
        self.merged = merged

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.base(inputs)
        return outputs if self.merged else outputs + self.up(self.down(inputs))


torch.manual_seed(0)
model = nn.Sequential(nn.Sequential(Adapted(16), nn.Tanh()), nn.Linear(16, 1))
optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)

for step in range(60):
    if step == 20:
        model[0][0].set_merged(True)
        with torch.no_grad():
            model.eval()(torch.randn(8, 16))
        model.train()
        if "fixed" in sys.argv:
            model[0][0].set_merged(False)
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
