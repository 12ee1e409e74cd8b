"""GT120: the state of the best step is a view of the live weights. With the argument `fixed` it is a copy."""

import copy
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters())

for step in range(40):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 20:
        best = copy.deepcopy(model.state_dict()) if "fixed" in sys.argv else model.state_dict()
model.load_state_dict(best)
