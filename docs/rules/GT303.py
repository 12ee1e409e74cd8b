"""GT303: evaluation runs with autograd. With the argument `fixed` it runs under no_grad."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(3):
    model.train()
    for _ in range(20):
        inputs = torch.randn(8, 16)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.set_grad_enabled("fixed" not in sys.argv):
        for _ in range(5):
            inputs = torch.randn(8, 16)
            nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).item()
