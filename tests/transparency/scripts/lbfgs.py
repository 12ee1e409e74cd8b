"""An optimizer that calls a closure several times a step."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
inputs = torch.randn(32, 4)
targets = inputs.square().sum(1, keepdim=True)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=8, line_search_fn="strong_wolfe")
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss


for step in range(6):
    print(step, optimizer.step(closure).item(), calls)
leave(model)
