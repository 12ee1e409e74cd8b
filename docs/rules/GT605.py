"""GT605: rank 1 has one batch more, and applies it alone. With the argument `fixed` all ranks have the same number.

Run it with `gradtui torchrun --nproc-per-node 2 GT605.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = 80 if "fixed" in sys.argv else 80 + distributed.get_rank()

# Two batches for each step.
for number in range(1, batches + 1):
    if number % 2:
        with model.no_sync():
            (model(torch.randn(4, 8)).square().mean() / 2).backward()
    else:
        (model(torch.randn(4, 8)).square().mean() / 2).backward()
    if number % 2 == 0 or number == batches:
        optimizer.step()
        optimizer.zero_grad()
distributed.destroy_process_group()
