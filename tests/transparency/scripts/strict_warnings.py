"""Every warning is an error, and one is caught."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import warnings

warnings.simplefilter("error")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    loss.backward()
    optimizer.step()
    try:
        nn.functional.mse_loss(torch.zeros(2), torch.zeros(2, 1))
    except UserWarning as caught:
        print(step, loss.item(), type(caught).__name__)
leave(model)
