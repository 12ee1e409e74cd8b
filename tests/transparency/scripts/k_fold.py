"""A new model for each fold; the old ones must go when the script lets them go."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import gc
import weakref

gone = []
for fold in range(4):
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 6)).square().mean()
        loss.backward()
        optimizer.step()
    print("fold", fold, loss.item())
    references = [
        weakref.ref(model),
        weakref.ref(optimizer),
        weakref.ref(model[0].weight),
        weakref.ref(model[0].weight.grad),
    ]
    if fold < 3:
        del model, optimizer, loss
        gc.collect()
        print("alive", [reference() is not None for reference in references])
leave(model)
