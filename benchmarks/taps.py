"""What a step that is not sampled costs, with the hooks put on and taken off in one process: what differs from one process to
the next (addresses, hash seeds: some percent of a step of half a millisecond) is no part of this.

    python benchmarks/taps.py --blocks 150
    python benchmarks/taps.py --norms

Blocks of steps with and without, taking turns, each after some steps that do not count; CPU time of the thread; median of the
differences of neighbours, in brackets where it lies in 19 of 20 drawings of other blocks from those there were. Without:
every wrapper is replaced by what it wraps, and the optimizers' global hooks are gone. Beside it stands the overhead that
gradtui states, as the header does. Norms and memory totals are read as in any run: at most 3 % of the step.

With `--norms`: what the norms of a step cost, from the list of its parameters to the figures that are emitted, beside one
`torch._foreach_norm` and `torch.stack` of the same gradients. Both take turns; median CPU time of the thread, in microseconds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
from rounds import most_lie_between
from torch import nn

from gradtui.probe.gradients.step_loss import LossReading
from gradtui.probe.hooks import install
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import ProbeOptions
from gradtui.probe.samplers.cpu_memory import cpu_allocator
from gradtui.transport.in_process import CommandQueue, EventQueue

_BLOCK = 300
_UNCOUNTED = 40
_DRAWINGS = 1_000
_REPLAYED = 20
"""Steps whose figures are made together, as in a run with steps of 10 ms."""
_ALLOWED_SHARE, _ALLOWED_US = 1.3, 20
"""What reading norms may take: a multiple of the norms alone, and microseconds."""


class Loop:
    """The MLP of `training_loop.py` whose step takes half a millisecond."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        layers: list[nn.Module] = [layer for _ in range(6) for layer in (nn.Linear(24, 24), nn.GELU())]
        self.model = nn.Sequential(*layers, nn.Linear(24, 10, bias=False))
        self.loss = nn.CrossEntropyLoss()
        self.x, self.y = torch.randn(16, 24), torch.randint(0, 10, (16,))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def microseconds(self, steps: int) -> float:
        """CPU time of this thread per step."""
        began = time.thread_time_ns()
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()
        return (time.thread_time_ns() - began) / steps / 1e3


@contextmanager
def hooks_off(probe: Probe) -> Iterator[None]:
    """Remove every wrapper and hook of gradtui, and install them again."""
    probe.report()
    before, after = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    kept = dict(before), dict(after)
    for owner, name, original, _, _ in probe.hooks._patches:
        setattr(owner, name, original)
    before.clear()
    after.clear()
    yield
    for owner, name, _, replacement, _ in probe.hooks._patches:
        setattr(owner, name, replacement)
    before.update(kept[0])
    after.update(kept[1])


class Wide(nn.Module):
    """`tensors` parameters of 32 x 32, each with a gradient of its own."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.randn(32, 32) for _ in range(tensors))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(part * x).sum() for part in self.parts]).sum()


def norms_of(tensors: int, times: int) -> None:
    """Print one line: what the norms of so many tensors cost."""
    torch.set_num_threads(1)
    probe = Probe(EventQueue().put, cpu_allocator(), ProbeOptions(CommandQueue(), budget=1e-6))
    install(probe)
    model = Wide(tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.ones(32, 32)).backward()
        optimizer.step()
    probe.report()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    buffered, bare, reading, figures = probe.norms.buffered, [], [], []
    for first in range(100, 100 + times, _REPLAYED):
        waiting: list[Any] = []
        for _ in range(_REPLAYED):
            began = time.thread_time_ns()
            torch.stack(torch._foreach_norm(gradients, 2))
            bare.append(time.thread_time_ns() - began)
            began = time.thread_time_ns()
            probe.hooks.read("gradient norms", buffered.on_step, optimizer)
            reading.append(time.thread_time_ns() - began)
            waiting += buffered.take().norms.values()
        for step, read in enumerate(waiting, first):
            began = time.thread_time_ns()
            probe.norms._buffered_norms(optimizer, 0, step, read, LossReading((1.0,)))
            figures.append(time.thread_time_ns() - began)
        probe.norms.latest.flush()
    probe.detach()
    alone, ours = (statistics.median(times) / 1e3 for times in (bare, map(sum, zip(reading, figures))))
    print(
        f"{tensors:>6,} tensors: {alone:8.1f} alone, {ours:8.1f} here; allowed {_ALLOWED_SHARE * alone + _ALLOWED_US:8.1f}"
    )


def main() -> None:
    """Read the arguments and print one line, or a table of norms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=150)
    parser.add_argument("--norms", action="store_true")
    arguments = parser.parse_args()
    if arguments.norms:
        for tensors, times in ((13, 2_000), (100, 1_000), (1_000, 300)):
            norms_of(tensors, times)
        return
    blocks = arguments.blocks
    loop, events = Loop(), EventQueue()
    probe = Probe(events.put, cpu_allocator(), ProbeOptions(CommandQueue(), budget=1e-6))
    install(probe)
    loop.microseconds(2_000)
    without, more, shown = [], [], []
    for _ in range(blocks):
        loop.microseconds(_UNCOUNTED)
        probe.report()
        loop.microseconds(1)
        before = probe.hooks.own_ns
        with_hooks = loop.microseconds(_BLOCK)
        with hooks_off(probe):
            # The buffered events were replayed, and their cost counted, when the hooks were removed.
            shown.append((probe.hooks.own_ns - before) / _BLOCK / 1e3)
            loop.microseconds(_UNCOUNTED)
            without.append(loop.microseconds(_BLOCK))
        more.append(with_hooks - without[-1])
        events.drain(1_000_000)
    probe.detach()
    added, base, says = (statistics.median(values) for values in (more, without, shown))
    chance = random.Random(0)
    low, high = most_lie_between(
        statistics.median(chance.choices(more, k=len(more))) for _ in range(_DRAWINGS)
    )  # fmt: skip
    # A difference that may be zero is no measure for the overhead that gradtui states.
    part = f", {says / added:.2f} of what is measured" if low > 0 else ""
    print(
        f"a step alone {base:.0f} µs of CPU; with the hooks {1 + added / base:.3f}x "
        f"({1 + low / base:.3f} to {1 + high / base:.3f}), "
        f"{added:+.1f} µs ({low:+.1f} to {high:+.1f}); says {says:.1f} µs{part}"
    )


if __name__ == "__main__":
    main()
