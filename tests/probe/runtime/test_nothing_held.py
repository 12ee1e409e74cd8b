"""What the readings of gradients keep alive, and what would wait for a device: with stand-ins that tell."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from helpers.late_copies import LateCopy
from helpers.watched import watched
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from gradtui.probe.gradients import grad_norms
from gradtui.probe.gradients.clipping import Clipping
from gradtui.probe.gradients.grad_norms import GradNorms
from gradtui.probe.gradients.grad_stats import GradStats
from gradtui.probe.gradients.step_loss import StepLoss
from gradtui.protocol.events import GradientsMeasured
from gradtui.protocol.vocabulary import GradientStats


def test_reading_under_way_keeps_total_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LateCopy, "waiting", [])
    monkeypatch.setattr(grad_norms, "HostCopy", LateCopy)
    total = torch.tensor(3.0)
    held = weakref.ref(total)
    meter = GradNorms(lambda reading: None)
    meter.measure(1, [(0, torch.ones(2))], None, Clipping(total, 1.0))
    del total
    assert held() is None
    assert len(meter._under_way) == 1


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["sampled", "buffered"])
def test_memory_of_loss_is_not_held_after_backward(budget: float) -> None:
    model, expected = nn.Linear(4, 2), []
    with watched(budget=budget) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).sum()
            memory = StorageWeakRef(loss.untyped_storage())
            expected.append(loss.item())
            loss.backward()
            del loss
            assert memory.expired()
            optimizer.step()
        assert bool(seen.probe.buffer.thread) == (budget == 0)
    assert [loss for _, loss in seen.losses()] == expected


@pytest.mark.usefixtures("as_on_a_device")
def test_loss_and_norms_are_delivered_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LateCopy, "waiting", [])
    losses: list[LateCopy] = []
    norms: list[LateCopy] = []
    add = StepLoss.add

    def add_late(self: StepLoss, value: Any, factor: float | None) -> None:
        losses.append(LateCopy(torch.tensor([value])))
        add(self, losses[-1], factor)

    def late_norms(values: torch.Tensor) -> LateCopy:
        norms.append(LateCopy(values))
        return norms[-1]

    monkeypatch.setattr(StepLoss, "add", add_late)
    monkeypatch.setattr(grad_norms, "HostCopy", late_norms)
    weight, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    with watched() as seen:
        optimizers = [torch.optim.SGD([each], lr=0.0) for each in (weight, other)]
        for number, optimizer in enumerate(optimizers):
            # The second optimizer has no gradients, so its step has a loss only.
            ((weight * torch.tensor([3.0, 4.0])).sum() + 0.5 + number).backward()
            optimizer.step()
        seen.probe.parts.flush(seen.probe.clock.now())
        assert seen.figures() == []
        for copy in losses:
            copy.has_arrived = True
        seen.probe.norms.poll()
        seen.probe.parts.flush(seen.probe.clock.now())
        # That of the first step waits for its norms.
        assert seen.losses() == [(2, 1.5)]
        norms[0].has_arrived = True
        seen.probe.norms.poll()
        seen.probe.parts.flush(seen.probe.clock.now())
        assert [(event.step, event.loss, event.total) for event in seen.all(GradientsMeasured)] == [(1, 0.5, 5.0)]


class Gathers(TorchDispatchMode):
    """Notes indexing by a list, whose index is copied to the device and waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "index.Tensor" in str(func):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


def test_alternating_dtypes_are_measured_without_index() -> None:
    parameters = [
        nn.Parameter(torch.full((3,), float(at + 1), dtype=(torch.float32, torch.float64)[at % 2])) for at in range(5)
    ]
    for at, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, 10.0 * (at + 1))
    found: list[GradientStats] = []
    statistics = GradStats(lambda step, figures: found.extend(figures))
    with Gathers() as seen:
        statistics.before_step(1, list(enumerate(parameters)), None, False)
        statistics.after_step()
    assert seen.found == []
    by_index = {each.parameter: each for each in found}
    for at in range(5):
        assert by_index[at].mean == pytest.approx(10.0 * (at + 1))
        assert by_index[at].weight_norm == pytest.approx((at + 1) * 3**0.5)
        assert by_index[at].elements == 3
