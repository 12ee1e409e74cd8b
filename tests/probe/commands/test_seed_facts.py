"""What everybody who trains should be able to read off the summary: which bytes are there after each phase of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from helpers.summaries import summarised
from helpers.watched import watched
from torch import nn

from gradtui.probe.samplers.cpu_memory import MallocAllocator

WIDTH, BATCH, DEPTH = 256, 256, 4
F32 = 4
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())))


MODEL = DEPTH * WIDTH * WIDTH * F32
# The first layer keeps the batch itself; each Tanh keeps its result, which is the next layer's input.
ACTIVATIONS = (DEPTH + 1) * BATCH * WIDTH * F32


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)


def summary_of(make: Make, steps: int, *, autocast: bool = False) -> dict[str, Any]:
    """The summary of a training that clears its gradients when the loss of the next step is there."""
    with watched(allocator=MallocAllocator()) as seen:
        model, x = deep(), torch.ones(BATCH, WIDTH)
        optimizer = make(model.parameters())
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = model(x).float().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return summarised(seen.state)


def bytes_after(summary: dict[str, Any], phase: str) -> dict[str, int]:
    """Bytes at the end of a phase, by category."""
    return summary["phases"][phase]["bytes_end"]


@pytest.mark.parametrize(
    ("make", "moments"),
    [
        (adam, 2),
        (lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3), 1),
        (lambda parameters: torch.optim.SGD(parameters, lr=1e-3), 0),
        (lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9), 1),
    ],
    ids=["Adam", "RMSprop", "SGD", "SGD with momentum"],
)
def test_moments_after_step_match_optimizer(make: Make, moments: int) -> None:
    held = bytes_after(summary_of(make, 2), "optimizer")
    counters = DEPTH * F32
    assert moments * MODEL <= held["optimizer_state"] <= moments * MODEL + counters
    assert held["gradients"] == MODEL


def test_from_second_step_on_all_four_come_together() -> None:
    # The gradients of the step before are cleared only when the next loss is there.
    summary = summary_of(adam, 4)
    forward = summary["phases"]["forward"]
    together = MODEL + MODEL + 2 * MODEL + ACTIVATIONS
    other = bytes_after(summary, "forward")["other"]
    assert forward["bytes_peak"] - other == pytest.approx(together, rel=0.05)


def test_autocast_shrinks_the_activations_and_nothing_else() -> None:
    plain, mixed = summary_of(adam, 2), summary_of(adam, 2, autocast=True)
    for phase in ("forward", "backward", "optimizer"):
        for category in ("parameters", "gradients", "optimizer_state"):
            assert bytes_after(mixed, phase)[category] == bytes_after(plain, phase)[category]
    # Half of them are results in bfloat16; beside those autograd keeps each weight's copy in bfloat16.
    results, copies = DEPTH * BATCH * WIDTH * 2, MODEL // 2
    assert bytes_after(mixed, "forward")["activations"] == pytest.approx(results + copies, rel=0.25)
    assert bytes_after(mixed, "forward")["activations"] - copies < 0.7 * bytes_after(plain, "forward")["activations"]


def test_inference_under_no_grad_keeps_no_activations() -> None:
    with watched(allocator=MallocAllocator()) as seen:
        model = deep()
        with torch.no_grad():
            for _ in range(3):
                model(torch.ones(BATCH, WIDTH))
    held = bytes_after(summarised(seen.state), "eval")
    assert (held["parameters"], held["activations"], held["gradients"]) == (MODEL, 0, 0)
