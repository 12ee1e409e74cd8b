"""GT710: each step writes a report that takes 25 milliseconds. With the argument `fixed` only one step in ten."""

import sys
import time

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(80):
    inputs = torch.randn(8, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if "fixed" not in sys.argv or step % 10 == 0:
        time.sleep(0.025)  # stands for a figure that is drawn and written
