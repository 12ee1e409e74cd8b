"""GT109: a layer is unfrozen after DistributedDataParallel was made. With the argument `fixed` the model is wrapped again."""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
net[0].requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for step in range(40):
    if step == 10:
        net[0].requires_grad_(True)
        if "fixed" in sys.argv:
            model = DistributedDataParallel(net)
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
