"""The last line of the script is not the end: threads still train, an executor is idle, and exit callbacks have a say."""

import atexit
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
model = nn.Linear(4, 1)
over = threading.Event()


def train():
    over.wait()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    threading.Thread(target=leave, args=(model,)).start()


@atexit.register
def last():
    print("model saved:", Path("weights0.pt").exists(), "threads:", threading.active_count() > 0)


pool = ThreadPoolExecutor(1)
print(pool.submit(sum, (1, 2)).result())
threading.Thread(target=train).start()
over.set()
print("last line")
