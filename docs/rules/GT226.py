"""GT226: the data set keeps a generator, of which each worker has a copy. With `fixed` it uses the global one."""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self) -> None:
        self.inputs = torch.randn(32, 16)
        self.random = random if "fixed" in sys.argv else random.Random(0)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index] + self.random.random(), self.inputs[index, :1]


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
