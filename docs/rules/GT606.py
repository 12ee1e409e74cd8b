"""GT606: each rank keeps the statistics of its own batches. With the argument `fixed` the wrapper broadcasts those of rank 0.

Run it with `gradtui torchrun --nproc-per-node 2 GT606.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(distributed.get_rank())
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
model = DistributedDataParallel(net, broadcast_buffers="fixed" in sys.argv)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

for _ in range(40):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
