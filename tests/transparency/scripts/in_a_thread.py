"""Training runs in a thread of the script’s."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import threading

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train():
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


thread = threading.Thread(target=train)
thread.start()
thread.join()
print(threading.current_thread() is threading.main_thread())
leave(model)
