"""GT402: the evaluation runs without gradients, but in train mode. With the argument `fixed` it runs in eval mode."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(3):
    model.train()
    for _ in range(20):
        inputs = torch.randn(8, 16)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if "fixed" in sys.argv:
        model.eval()
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(8, 16))
