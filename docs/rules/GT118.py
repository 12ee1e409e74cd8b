"""GT118: a frozen encoder with spectral norm is in train mode. With the argument `fixed` it is in eval mode."""

import sys

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
encoder = nn.Sequential(spectral_norm(nn.Linear(16, 32)), nn.ReLU())
encoder.requires_grad_(False)
model = nn.Sequential(encoder, nn.Linear(32, 1))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)

model.train()
if "fixed" in sys.argv:
    encoder.eval()
for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
