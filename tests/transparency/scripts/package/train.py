"""Run as `-m package.train`, with relative imports and a path relative to the working directory."""

import random
import sys
from pathlib import Path

import torch
from ending import leave

from .network import build

if __name__ == "__main__":
    print(__name__, __package__, sys.argv[1:], Path(sys.argv[0]).name)
    random.seed(1)
    torch.manual_seed(1)
    scale = float(Path("data/scale.txt").read_text())
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        loss = (scale * model(torch.randn(4, 4))).square().mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    leave(model)
