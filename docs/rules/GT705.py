"""GT705: each step saves the frozen body too. With the argument `fixed` only the head, which trains."""

import io
import sys
import time

import torch
from torch import nn


class SlowFile(io.BytesIO):
    """Stands for a file on a disk that takes ten milliseconds for each mebibyte."""

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        time.sleep(0.01 * memoryview(data).nbytes / 2**20)
        return super().write(data)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Linear(16, 1_000).requires_grad_(False), nn.Linear(1_000, 700).requires_grad_(False), nn.Linear(700, 1)
)
optimizer = torch.optim.SGD(model[2].parameters(), lr=1e-4)

for _ in range(60):
    inputs = torch.randn(8, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save((model[2] if "fixed" in sys.argv else model).state_dict(), SlowFile())
