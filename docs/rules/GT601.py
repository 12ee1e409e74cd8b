"""GT601: each rank freezes a layer when its own loss is small. With the argument `fixed` the loss of all ranks decides.

Run it with `gradtui torchrun --nproc-per-node 2 GT601.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
model = DistributedDataParallel(net, find_unused_parameters=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
# The data of rank 1 are smaller.
scale = 1.0 if distributed.get_rank() == 0 else 0.1

for step in range(40):
    loss = model(scale * torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen = loss.detach().clone()
    if "fixed" in sys.argv:
        distributed.all_reduce(seen)
    if step > 10 and seen < 0.02:
        net[0].requires_grad_(False)
distributed.destroy_process_group()
