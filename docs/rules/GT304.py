"""GT304: a recurrent state is carried over with its graph. With the argument `fixed` it is detached."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
encoder, recurrence, head = nn.Linear(8, 16), nn.Linear(16, 16).requires_grad_(False), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.01)
state = torch.zeros(4, 16)

for _ in range(40):
    inputs = torch.randn(4, 8)
    if "fixed" in sys.argv:
        state = state.detach()
    state = torch.tanh(encoder(inputs) + recurrence(state))
    loss = (head(state) - inputs.mean(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
