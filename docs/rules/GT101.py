"""GT101: a layer is frozen after its gradient was set to zeros. With the argument `fixed` its gradient is None."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)

for step in range(60):
    inputs = torch.randn(8, 16)
    optimizer.zero_grad(set_to_none=False)
    if step == 10:
        model[0].requires_grad_(False)
        if "fixed" in sys.argv:
            for parameter in model[0].parameters():
                parameter.grad = None
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
