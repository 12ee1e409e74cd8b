"""GT106: a layer is unfrozen after the optimizer was made of the other one. With the argument `fixed` it joins it."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
model[0].requires_grad_(False)
optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)

for step in range(60):
    if step == 10:
        model[0].requires_grad_(True)
        if "fixed" in sys.argv:
            optimizer.add_param_group({"params": list(model[0].parameters())})
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
