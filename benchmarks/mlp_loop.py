"""A plain training loop of 13 parameters (the shortest: 5) whose step takes about a given time; tells the average.

It knows nothing of gradtui: `step_cost.py` runs it with and without.
"""

import argparse
import json
import os
import time

import torch
from torch import nn

SIZES = {"0.2": (2, 8, 8, "sgd"), "0.5": (6, 24, 16, "sgd"), "2": (6, 128, 128, "adam"), "20": (6, 288, 320, "adam")}
"""Milliseconds, about -> hidden layers, their width, batch size, optimizer."""

parser = argparse.ArgumentParser()
parser.add_argument("size", choices=SIZES)
parser.add_argument("--seconds", type=float, default=3.0)
parser.add_argument("--warmup", type=float, default=1.0)
arguments = parser.parse_args()
depth, width, batch, name = SIZES[arguments.size]

torch.manual_seed(0)
torch.set_num_threads(1)
layers: list[nn.Module] = []
for _ in range(depth):
    layers += [nn.Linear(width, width), nn.GELU()]
model = nn.Sequential(*layers, nn.Linear(width, 10, bias=False))
loss_of = nn.CrossEntropyLoss()
make = torch.optim.Adam if name == "adam" else torch.optim.SGD
optimizer = make(model.parameters(), lr=1e-3)
inputs, targets = torch.randn(batch, width), torch.randint(0, 10, (batch,))


def train(seconds: float) -> tuple[float, float, int]:
    """Wall and thread seconds per step, and the number of steps."""
    steps, began, cpu = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
        steps += 10
    return (time.perf_counter() - began) / steps, (time.thread_time() - cpu) / steps, steps


train(arguments.warmup)
wall, cpu, steps = train(arguments.seconds)
with open(os.environ["STEP_COST_RESULT"], "w") as result:
    json.dump({"wall_us": wall * 1e6, "cpu_us": cpu * 1e6, "steps": steps}, result)
