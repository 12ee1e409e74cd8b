"""Lazy, sparse, complex, zero-size, tied and parametrized parameters."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
from torch.nn.utils import parametrizations


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.lazy = nn.LazyLinear(6)
        self.table = nn.Embedding(10, 6, sparse=True)
        self.tied = nn.Linear(6, 6, bias=False)
        self.also_tied = nn.Linear(6, 6, bias=False)
        self.also_tied.weight = self.tied.weight
        self.normed = parametrizations.weight_norm(nn.Linear(6, 6))
        self.spectral = parametrizations.spectral_norm(nn.Linear(6, 6))
        self.wave = nn.Parameter(torch.randn(6, dtype=torch.complex64))
        self.nothing = nn.Parameter(torch.empty(0, 6))
        self.number = nn.Parameter(torch.tensor(0.5))
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs, indices):
        hidden = self.lazy(inputs) + self.table(indices)
        hidden = self.also_tied(torch.tanh(self.tied(hidden)))
        hidden = self.spectral(self.normed(hidden)) * self.number + self.nothing.sum()
        return (hidden * self.wave).abs().square().mean()


model = Odd()
model(torch.randn(2, 5), torch.tensor([0, 1]))
dense = [parameter for name, parameter in model.named_parameters() if name != "table.weight"]
optimizers = [torch.optim.Adam(dense, lr=1e-2), torch.optim.SparseAdam(model.table.parameters(), lr=1e-2)]
for step in range(12):
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = model(torch.randn(4, 5), torch.randint(0, 10, (4,)))
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(step, loss.item())
leave(model)
