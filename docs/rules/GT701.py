"""GT701: one process opens all files of a batch. With the argument `fixed` the samples are opened once, before the training."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Files(Dataset[torch.Tensor]):
    """Samples that take two milliseconds each to open."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((16,), index / 1_000)


torch.manual_seed(0)
torch.set_num_threads(1)
samples: Dataset[torch.Tensor] = Files()
if "fixed" in sys.argv:
    loader = DataLoader(TensorDataset(torch.stack([samples[index] for index in range(80)])), batch_size=16)
else:
    loader = DataLoader(samples, batch_size=16)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for batch in loader:
    inputs = batch[0] if "fixed" in sys.argv else batch
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
