"""A loss scaler that meets an infinite gradient and leaves the step out."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
for step in range(15):
    optimizer.zero_grad()
    inputs = torch.randn(4, 6)
    if step in (5, 6):
        inputs[0, 0] = 3e38
    loss = model(inputs).square().mean()
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
leave(model)
