"""What a comparison of an averaged copy with its model finds, in real sampled steps."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers.training import square_step
from helpers.watched import watched
from torch import nn

from gradtui.probe.memory import cpu_allocator
from gradtui.protocol.events import AveragedCopyCompared


def compared(
    dtype: torch.dtype = torch.float32,
    *,
    buffers: bool = False,
    average: bool = True,
    decay: float = 0.9,
    runs: bool = True,
) -> AveragedCopyCompared | None:
    """Train a model and an average of it. Returns the newest comparison."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))
    teacher = copy.deepcopy(model).requires_grad_(False).eval().to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watched(budget=100.0, allocator=cpu_allocator()) as seen:
        for _ in range(30):
            inputs = torch.randn(16, 6) + 2
            if runs:
                with torch.no_grad():
                    teacher(inputs.to(dtype))
            square_step(model, optimizer, inputs)
            for averaged, parameter in zip(teacher.parameters(), model.parameters()):
                if average:
                    averaged.data.mul_(decay).add_(parameter.data.to(dtype), alpha=1 - decay)
            if buffers:
                for averaged, buffer in zip(teacher.buffers(), model.buffers()):
                    averaged.data.copy_(buffer)
    events = seen.all(AveragedCopyCompared)
    return events[-1] if events else None


@pytest.mark.parametrize("buffers", [True, False])
def test_buffers_follow_or_do_not(buffers: bool) -> None:
    event = compared(buffers=buffers)
    assert event is not None
    assert event.buffers == ("1.running_mean", "1.running_var")
    assert event.is_called
    assert event.buffers_changed == (float(buffers), 1.0)
    assert event.tensors_changed == (1.0, 1.0)


def test_an_average_in_bfloat16_hardly_moves() -> None:
    coarse, fine = compared(torch.bfloat16, decay=0.999), compared(torch.float32, decay=0.999)
    assert coarse is not None
    assert fine is not None
    assert 0 < coarse.elements_changed[0] < 0.5
    assert fine.elements_changed[0] > 0.9
    assert coarse.elements_changed[1] > 0.9


def test_a_teacher_that_nobody_writes_to() -> None:
    event = compared(torch.bfloat16, average=False)
    assert event is not None
    assert event.elements_changed[0] == 0


def test_copy_that_never_runs_is_no_listed_model() -> None:
    assert compared(runs=False) is None
