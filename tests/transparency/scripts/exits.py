"""Trains a little and leaves by sys.exit with the code that is given."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import sys

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
        if step == 4:
            sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1])
finally:
    print("left in step", step)
    leave(model)
