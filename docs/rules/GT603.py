"""GT603: each rank lowers its learning rate by its own loss. With the argument `fixed` the loss of all ranks decides.

Run it with `gradtui torchrun --nproc-per-node 2 GT603.py`.
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, min_lr=1e-4)
# The loss of rank 0 falls in every step; that of rank 1 depends on its data.
data = torch.Generator().manual_seed(distributed.get_rank())
x = torch.randn(4, 8, generator=data)

for _ in range(40):
    if distributed.get_rank() == 1:
        x = torch.randn(4, 8, generator=data)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen = loss.detach().clone()
    if "fixed" in sys.argv:
        distributed.all_reduce(seen)
    scheduler.step(seen)
distributed.destroy_process_group()
