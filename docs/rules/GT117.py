"""GT117: the encoder has an attribute requires_grad, and trains. With the argument `fixed` its parameters are frozen."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
model = nn.Sequential(encoder, nn.Linear(16, 1))
if "fixed" in sys.argv:
    encoder.requires_grad_(False)
else:
    encoder.requires_grad = False
optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
