"""GT219: a checkpoint with dropout does not restore random numbers. With the argument `fixed` it does."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.block = nn.Sequential(nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        restores = "fixed" in sys.argv
        x = checkpoint(self.block, self.stem(x), use_reentrant=False, preserve_rng_state=restores)
        return self.head(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
