"""Classes of `__main__` are pickled, read back, and pickled once more after the end."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import atexit
import pickle
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Settings:
    width: int = 8
    rate: float = 0.1


class Head(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.layer = nn.Linear(settings.width, 2)

    def forward(self, inputs):
        return self.layer(inputs)


model = Head(Settings())
optimizer = torch.optim.SGD(model.parameters(), lr=model.settings.rate)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
torch.save(model, "model.pt")
torch.save(optimizer.state_dict(), "optimizer.pt")
again = torch.load("model.pt", weights_only=False)
print(type(again) is Head, again.settings, Head.__module__, pickle.loads(pickle.dumps(model.settings)) == Settings())


@atexit.register
def late():
    Path("late.pickle").write_bytes(pickle.dumps(Settings(width=3)))
    print("written at exit", pickle.loads(Path("late.pickle").read_bytes()))


leave(model)
