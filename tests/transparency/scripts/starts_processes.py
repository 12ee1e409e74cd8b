"""Starts programs and workers, forks, and waits for them."""

import random

import torch
from ending import leave
from torch import nn

random.seed(5)
torch.manual_seed(5)
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor


def work(number):
    return number, float(torch.ones(3).sum()) * number


def main():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
    said = subprocess.run([sys.executable, "-c", "import sys; print(sys.argv)", "a b"], capture_output=True, check=True)
    print(said.stdout, flush=True)
    subprocess.run([sys.executable, "-c", "print('on the same stdout')"], check=True)
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(work, range(3))), flush=True)
    child = os.fork()
    if child == 0:
        print("the child's own line", flush=True)
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    leave(model)


if __name__ == "__main__":
    main()
