"""GT708: rank 1 reads its samples from a slow disk. With the argument `fixed` both ranks read from a fast one.

Run it with `gradtui torchrun --nproc-per-node 2 GT708.py`.
"""

import sys
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Files(Dataset[torch.Tensor]):
    """Samples that take three milliseconds to read on rank 1, and nearly nothing elsewhere."""

    def __len__(self) -> int:
        return 800

    def __getitem__(self, index: int) -> torch.Tensor:
        if distributed.get_rank() == 1 and "fixed" not in sys.argv:
            time.sleep(0.003)
        return torch.full((16,), index / 1_000)


distributed.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for inputs in DataLoader(Files(), batch_size=8):
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
