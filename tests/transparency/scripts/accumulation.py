"""Accumulation over three micro-batches, clipping and a scheduler."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)
for micro_step in range(60):
    loss = (model(torch.randn(4, 8)) - 1).square().mean() / 3
    loss.backward()
    if micro_step % 3 == 2:
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=micro_step % 2 == 0)
        print(micro_step, total.item(), scheduler.get_last_lr())
leave(model)
