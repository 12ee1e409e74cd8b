"""Reads of tensor values by us: one for the norms of a step, and on the CPU one for each loss.

On a device each would wait for it, so this is what `torch.cuda.set_sync_debug_mode("error")` checks there
(`test_on_a_device.py`), counted where there is none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn

import gradtui
from gradtui.probe.gradients.nonfinite_check import NAN, NonFiniteCheck
from gradtui.probe.sampling import step_sampler
from gradtui.protocol.commands import FollowMicroSteps
from gradtui.protocol.events import GradientFiguresMeasured

ON_THE_CPU_ONLY = ("nonfinite.py", "nonfinite_check.py", "nonfinite_values.py")
"""These look for the first NaN where a value is at hand, and nowhere else: see the last test."""
OURS, TORCHS = str(Path(gradtui.__file__).parent), str(Path(torch.__file__).parent)
READS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__", "__array__", "nonzero")
X = torch.linspace(-1, 1, 24).view(6, 4)
LOSSES = 3
"""Reads for the losses of a step of two backwards: of both losses, and the number by which the script has divided the second.
That number is on the host. The losses are there too in these tests; from a device they are copied without waiting."""

CLIPPED = 1
SPIKE = 1
"""The norm that the script's clipping has returned, which is compared with those of the steps before."""
"""A read of the total that the script's clipping has returned, where norms are read. From a device it comes with these."""

ON_THE_HOST = 3
"""Reads in a step whose events are not buffered, of what is on the host only: the numbers by which the script has divided
its two losses, and the total that clipping has returned."""


def is_ours(frame: FrameType | None) -> bool:
    """Whether the code that asked for a value, torch's own aside, is ours."""
    while frame is not None and frame.f_code.co_filename.startswith(TORCHS):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(OURS):
        return False
    return Path(frame.f_code.co_filename).name not in ON_THE_CPU_ONLY


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the reads that are made by our code, in order."""
    made: list[str] = []

    def counting(name: str) -> Callable[..., Any]:
        original = getattr(torch.Tensor, name)

        def read(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if is_ours(sys._getframe(1)):
                made.append(name)
            return original(self, *args, **kwargs)

        return read

    for name in READS:
        monkeypatch.setattr(torch.Tensor, name, counting(name))
    monkeypatch.setattr(step_sampler, "_AFTER_A_CHANGE", 1)
    return made


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def steps_of(seen: Watched, reads: list[str], *, count: int = 20, follow: bool = False) -> list[Counter[str]]:
    """What is read in each of `count` steps, with everything a step may have: micro-steps, clipping, evaluation, Adam."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if follow:
        seen.submit(lambda number: FollowMicroSteps(number, True))
    by_step = []
    for _ in range(count):
        reads.clear()
        optimizer.zero_grad()
        for part in X.split(3):
            (model(part).square().mean() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        by_step.append(Counter(reads))
    return by_step


def measured(seen: Watched) -> tuple[set[int], set[int]]:
    """The steps whose norms were measured, and those of which more figures were taken."""
    return {step for step, _ in seen.totals()}, {event.step for event in seen.all(GradientFiguresMeasured)}


def lists_and_numbers(reads: Counter[str]) -> tuple[int, int]:
    """How many tensors were read, and how many single numbers."""
    return reads["tolist"], reads.total() - reads["tolist"]


def test_measured_step_is_read_once_others_never(
    reads: list[str], set_reading_interval: Callable[[int], None], set_sample_cost: Callable[[float], None]
) -> None:
    set_reading_interval(2)
    set_sample_cost(0.001)
    with watched(budget=0.0) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        by_step = steps_of(seen, reads)
    norms, figures = measured(seen)
    # The first two steps are sampled.
    assert norms == {1, *range(2, 21, 2)}
    assert figures == {1, 2}
    assert [*map(lists_and_numbers, by_step[2:])] == [(0, LOSSES), (1, LOSSES + CLIPPED + SPIKE)] * 9


def test_examined_step_is_read_three_times(reads: list[str]) -> None:
    """Norms; the figures of each gradient; how far the step has moved the weights."""
    with watched(budget=1_000.0) as seen:
        by_step = steps_of(seen, reads, count=10)
    _, figures = measured(seen)
    assert figures >= {1, 2, 3, 4}
    for step in (2, 3, 4):
        assert lists_and_numbers(by_step[step - 1]) == (3, LOSSES + CLIPPED + ON_THE_HOST)


def test_requested_micro_step_is_read_once_more(reads: list[str]) -> None:
    with watched(budget=0.0) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        by_step = steps_of(seen, reads, follow=True)
    # Norms, and those of two micro-steps.
    # After the first steps the factors of losses are known.
    first, later = (3, LOSSES + CLIPPED + ON_THE_HOST), (3, LOSSES + CLIPPED + ON_THE_HOST - 2)
    assert [*map(lists_and_numbers, by_step[2:])] == [first] * 15 + [later] * 3


def test_what_looks_for_first_nan_leaves_device_alone() -> None:
    """A tensor without values raises an error at any read."""
    elsewhere = torch.full((3,), 2.0, device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)):
        elsewhere.sum().item()
    with watched() as seen:
        seen.probe.norms.losses.on_backward(elsewhere.sum())
    assert NonFiniteCheck(1.0).at(elsewhere) is None
    assert NonFiniteCheck(1.0).at(torch.tensor([1.0, float("nan")])) == NAN
