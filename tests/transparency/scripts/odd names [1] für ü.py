"""Names that trip who parses them."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Module()
model.add_module("a[0]", nn.Linear(3, 4))
model.add_module("größe (2)", nn.Linear(4, 4))
model.add_module("weight", nn.Linear(4, 1))
model.add_module("", nn.Identity()) if False else None
model.register_parameter("!*?", nn.Parameter(torch.ones(1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
parts = dict(model.named_children())
for step in range(8):
    optimizer.zero_grad()
    hidden = torch.randn(2, 3)
    for part in parts.values():
        hidden = part(hidden)
    (hidden * getattr(model, "!*?")).sum().backward()
    optimizer.step()
print(list(parts))
leave(model)
