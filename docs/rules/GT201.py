"""GT201: the output of the encoder is rebuilt from numbers. With the argument `fixed` it is passed on as it is."""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        encoded = self.encoder(x)
        if "fixed" not in sys.argv:
            encoded = torch.tensor(encoded.tolist())
        return self.head(encoded)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
