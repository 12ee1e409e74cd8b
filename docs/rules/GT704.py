"""GT704: the validation set is evaluated after every five steps. With the argument `fixed` once, at the end."""

import sys
import time

import torch
from torch import nn


class Slow(nn.Module):
    """Stands for a large model, whose forward takes three milliseconds."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(0.003)
        return inputs


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1), Slow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
validation = torch.randn(20, 64, 16)
every = 100 if "fixed" in sys.argv else 5

for step in range(100):
    inputs = torch.randn(64, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % every == every - 1:
        model.eval()
        with torch.no_grad():
            for batch in validation:
                model(batch)
        model.train()
