"""A DataLoader whose workers are started by the method that is named."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import sys

from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), index / 24) + 0.01 * torch.rand(4), torch.tensor([index**2 / 576])


def train(method):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        Squares(), batch_size=6, shuffle=True, multiprocessing_context=method,
        # Those of the other methods import torch again each time they are started.
        num_workers=2 if method == "fork" else 1, persistent_workers=method != "fork",
    )  # fmt: skip
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            print(epoch, loss.item())
    leave(model)


if __name__ == "__main__":
    train(sys.argv[1])
