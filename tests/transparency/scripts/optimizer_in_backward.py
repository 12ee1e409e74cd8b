"""One optimizer for each parameter, stepped by a hook as soon as its gradient is there."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
optimizers = {parameter: torch.optim.Adam([parameter], lr=1e-2) for parameter in model.parameters()}


def step_at_once(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_at_once)
for step in range(12):
    loss = model(torch.randn(8, 6)).square().mean()
    loss.backward()
    print(step, loss.item())
leave(model)
