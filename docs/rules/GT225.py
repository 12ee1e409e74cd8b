"""GT225: nothing calls set_epoch of the DistributedSampler. With the argument `fixed` each epoch does."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 16), torch.randn(128, 1))
sampler = DistributedSampler(data, num_replicas=2, rank=0)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(5):
    if "fixed" in sys.argv:
        sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
