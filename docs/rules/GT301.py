"""GT301: predictions are kept with their graphs. With the argument `fixed` they are detached."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
shown, history = torch.randn(512, 64), []

for _ in range(60):
    inputs = torch.randn(32, 64)
    loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    predicted = model(shown)
    history.append(predicted.detach() if "fixed" in sys.argv else predicted)
