"""GT222: the model ends in a softmax, and the loss applies another one. With the argument `fixed` it ends in logits."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
if "fixed" not in sys.argv:
    model.append(nn.Softmax(dim=1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

for _ in range(40):
    inputs = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
