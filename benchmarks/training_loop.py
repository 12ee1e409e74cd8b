"""A plain training loop whose step takes about a given time; tells the average.

An MLP of 13 parameters (the shortest: 5), or the GPT of `tests/zoo` in a size whose step takes 20 or 300 ms. It imports
nothing of gradtui. With `--follow NAME` the file `contenders/NAME.py` takes part in it the way its package documents.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

MLPS = {"0.2": (2, 8, 8, "sgd"), "0.5": (6, 24, 16, "sgd"), "2": (6, 128, 128, "adam"), "20": (6, 288, 320, "adam")}
"""Milliseconds, about -> hidden layers, their width, batch size, optimizer."""
GPTS = {"gpt": (96, 4, 4, 16), "gpt300": (256, 8, 8, 16)}
"""Name -> width, heads, layers, batch size: steps of 20 and of 300 ms."""

parser = argparse.ArgumentParser()
parser.add_argument("size", choices=[*MLPS, *GPTS])
parser.add_argument("--seconds", type=float, default=3.0)
parser.add_argument("--warmup", type=float, default=1.0)
parser.add_argument("--turns", nargs=2, metavar="FIFO", help="take turns: the first requests one, the second answers")
parser.add_argument(
    "--uncounted", type=float, default=0.0, help="seconds at the beginning of each turn that are left out"
)
parser.add_argument("--idle-thread", action="store_true", help="start a thread that only sleeps")
parser.add_argument("--follow", help="a file in contenders/, and its option after a colon")


def mlp(depth: int, width: int, batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The model, and what computes its loss."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10, bias=False))
    loss_of = nn.CrossEntropyLoss()
    inputs, targets = torch.randn(batch, width), torch.randint(0, 10, (batch,))
    return model, lambda: loss_of(model(inputs), targets)


def gpt(width: int, heads: int, layers: int, batch: int) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A GPT of 13 parameters a layer."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from zoo.attention import TinyGPT

    model = TinyGPT(vocabulary=256, context=32, width=width, heads=heads, layers=layers)
    tokens = torch.randint(0, 256, (batch, 33))
    return model, lambda: model(tokens[:, :-1], tokens[:, 1:])[1]


def train(one_step: Callable[[], object], seconds: float) -> dict[str, float]:
    """Take steps for so long; seconds per step by the clock, of this thread, and of all threads together."""
    began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    steps, at_once = 0, 1
    while time.perf_counter() - began < seconds:
        for _ in range(at_once):
            one_step()
        steps += at_once
        at_once = 10 if (time.perf_counter() - began) / steps < 0.01 else 1
    wall = time.perf_counter() - began
    thread, process = time.thread_time() - thread, time.process_time() - process
    return {
        "wall_us": wall / steps * 1e6,
        "cpu_us": thread / steps * 1e6,
        "process_us": process / steps * 1e6,
        "others_share": (process - thread) / wall,
        "steps": steps,
    }


arguments = parser.parse_args()
if arguments.idle_thread:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
torch.manual_seed(0)
torch.set_num_threads(1)
if arguments.size in GPTS:
    optimizer_name = "adam"
    model, loss_now = gpt(*GPTS[arguments.size])
else:
    depth, width, batch_size, optimizer_name = MLPS[arguments.size]
    model, loss_now = mlp(depth, width, batch_size)
make = torch.optim.Adam if optimizer_name == "adam" else torch.optim.SGD
optimizer = make(model.parameters(), lr=1e-3)


def step(after_backward: Callable[[], object] | None = None) -> Tensor:
    """One step of training; a contender that reads gradients does so after backward."""
    optimizer.zero_grad()
    loss = loss_now()
    loss.backward()
    if after_backward is not None:
        after_backward()
    optimizer.step()
    return loss


def said_ns() -> int | None:
    """What gradtui says that it has cost so far, as the header has it; None where it does not watch."""
    session = sys.modules.get("gradtui.probe.session")
    probe = session.active_probe() if session is not None else None
    return probe.hooks.own_ns if probe is not None else None


def measured(one_step: Callable[[], object]) -> dict[str, float]:
    """Take the steps that count; with what gradtui says of them."""
    before = said_ns()
    found = train(one_step, arguments.seconds)
    if before is not None:
        found["said_us"] = ((said_ns() or 0) - before) / found["steps"] / 1e3
    return found


def take_turns(one_step: Callable[[], object], requests_path: str, answers_path: str) -> None:
    """Measure on each request, until the other end is closed."""
    with open(answers_path, "w", buffering=1) as answers, open(requests_path) as requests:
        answers.write("{}\n")
        while requests.readline():
            train(one_step, arguments.uncounted)
            answers.write(json.dumps(measured(one_step)) + "\n")


def run(one_step: Callable[[], object]) -> None:
    """Warm up, measure, and write down what was measured."""
    if arguments.warmup > 0:
        train(one_step, arguments.warmup)
    if arguments.turns:
        take_turns(one_step, *arguments.turns)
        return
    found = measured(one_step)
    with open(os.environ["STEP_COST_RESULT"], "w") as result:
        json.dump(found, result)


if arguments.follow is None:
    run(step)
else:
    name, _, option = arguments.follow.partition(":")
    contender = importlib.import_module(f"contenders.{name}")
    if hasattr(contender, "host"):
        contender.host(model, lambda: run(step))
    else:
        with contextlib.ExitStack() as stack:
            run(stack.enter_context(contender.follow(model, optimizer, step, option)))
