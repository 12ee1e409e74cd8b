"""GT115: Adam keeps the state of frozen layers. With the argument `fixed` the script deletes it."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

for step in range(60):
    if step == 20:
        model[0].requires_grad_(False)
        if "fixed" in sys.argv:
            for parameter in model[0].parameters():
                del optimizer.state[parameter]
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
