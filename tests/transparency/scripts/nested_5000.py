"""Five thousand small modules, nested."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)


class Node(nn.Module):
    def __init__(self, children):
        super().__init__()
        self.children_ = nn.ModuleList(children)
        self.scale = nn.Parameter(torch.ones(2)) if not children else None

    def forward(self, inputs):
        if self.scale is not None:
            return inputs * self.scale
        for child in self.children_:
            inputs = child(inputs)
        return inputs


def nested(depth):
    return Node([nested(depth - 1) for _ in range(7)] if depth else [])


model = nn.Sequential(nested(4), nn.Linear(2, 1))
print(sum(1 for _ in model.modules()))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 2)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
leave(model)
