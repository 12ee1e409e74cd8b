"""A plain training loop whose step takes about a given time; tells the average.

An MLP of 13 parameters (the shortest: 5), or the GPT of `tests/zoo` in a size whose step takes 20 ms. It knows nothing of
gradtui: `step_cost.py` runs it with and without.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

SIZES = {"0.2": (2, 8, 8, "sgd"), "0.5": (6, 24, 16, "sgd"), "2": (6, 128, 128, "adam"), "20": (6, 288, 320, "adam")}
"""Milliseconds, about -> hidden layers, their width, batch size, optimizer."""

parser = argparse.ArgumentParser()
parser.add_argument("size", choices=[*SIZES, "gpt"])
parser.add_argument("--seconds", type=float, default=3.0)
parser.add_argument("--warmup", type=float, default=1.0)
arguments = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)


def mlp(depth: int, width: int, batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The model, and what computes its loss."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10, bias=False))
    loss_of = nn.CrossEntropyLoss()
    inputs, targets = torch.randn(batch, width), torch.randint(0, 10, (batch,))
    return model, lambda: loss_of(model(inputs), targets)


def gpt() -> tuple[nn.Module, Callable[[], Tensor]]:
    """A GPT of 52 parameters."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from zoo.attention import TinyGPT

    model = TinyGPT(vocabulary=256, context=32, width=96, heads=4, layers=4)
    tokens = torch.randint(0, 256, (16, 33))
    return model, lambda: model(tokens[:, :-1], tokens[:, 1:])[1]


if arguments.size == "gpt":
    name = "adam"
    model, loss_now = gpt()
else:
    depth, width, batch, name = SIZES[arguments.size]
    model, loss_now = mlp(depth, width, batch)
make = torch.optim.Adam if name == "adam" else torch.optim.SGD
optimizer = make(model.parameters(), lr=1e-3)


def train(seconds: float) -> tuple[float, float, int]:
    """Wall and thread seconds per step, and the number of steps."""
    steps, began, cpu = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            optimizer.zero_grad()
            loss_now().backward()
            optimizer.step()
        steps += 10
    return (time.perf_counter() - began) / steps, (time.thread_time() - cpu) / steps, steps


train(arguments.warmup)
wall, cpu, steps = train(arguments.seconds)
with open(os.environ["STEP_COST_RESULT"], "w") as result:
    json.dump({"wall_us": wall * 1e6, "cpu_us": cpu * 1e6, "steps": steps}, result)
