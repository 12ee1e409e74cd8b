"""GT712: the model is made float64 to fit NumPy's numbers. With the argument `fixed` these are made float32."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
dtype = torch.float32 if "fixed" in sys.argv else torch.float64
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(40):
    inputs = torch.randn(8, 16, dtype=torch.float64).to(dtype)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
