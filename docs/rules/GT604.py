"""GT604: each rank initialises a layer again after the model was wrapped. With the argument `fixed` it does so before that.

Run it with `gradtui torchrun --nproc-per-node 2 GT604.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(distributed.get_rank())
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
if "fixed" in sys.argv:
    nn.init.xavier_uniform_(net[2].weight)
    model = DistributedDataParallel(net)
else:
    # Wrapping copies the parameters of rank 0 to all ranks.
    model = DistributedDataParallel(net)
    nn.init.xavier_uniform_(net[2].weight)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for _ in range(40):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
