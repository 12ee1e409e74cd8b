"""GT602: only rank 0 gives a layer to the optimizer. With the argument `fixed` all ranks do.

Run it with `gradtui torchrun --nproc-per-node 2 GT602.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net[2].parameters(), lr=0.01)
if "fixed" in sys.argv or distributed.get_rank() == 0:
    optimizer.add_param_group({"params": [*net[0].parameters()]})

for _ in range(40):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
