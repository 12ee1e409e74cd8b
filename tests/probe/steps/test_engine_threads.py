"""Optimizers that step within backward on a thread of the autograd engine's, as all do whose parameters are on a device.

On the CPU the engine uses threads of its own where backward calls backward more than 60 times within itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.torch_private.private_names import current_graph_task_id
from gradtui.protocol.events import GradientsMeasured
from gradtui.protocol.vocabulary import Phase

DEEP = 62


class Nested(torch.autograd.Function):
    """Its backward runs another one within itself, `depth` times, and calls `at_bottom` there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, depth: int, at_bottom: Callable[[], None]) -> Tensor:
        ctx.rest = depth, at_bottom
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        depth, at_bottom = ctx.rest
        if depth:
            with torch.enable_grad():
                inner = Nested.apply(torch.zeros(1, requires_grad=True), depth - 1, at_bottom)
                inner.sum().backward()
        else:
            at_bottom()
        return gradient, None, None


class Training:
    """Of a model whose optimizer steps within backward, in a thread of the engine's."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.threads: set[int] = set()
        self.norms: list[float] = []

    def iteration(self) -> None:
        loss = self.model(torch.ones(3, 4)).square().mean()
        # Its gradients are there when the second backward begins.
        loss.backward()
        Nested.apply(torch.zeros(1, requires_grad=True), DEEP, self._apply).sum().backward()

    def _apply(self) -> None:
        assert current_graph_task_id() != -1
        self.threads.add(threading.get_ident())
        self.norms.append(
            torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None]).norm().item()
        )
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.mark.parametrize(("budget", "count"), [(100.0, 5), (0.0, 40)])
def test_step_within_backward_counts_on_any_thread(budget: float, count: int) -> None:
    with watched(budget=budget) as seen:
        training = Training()
        for _ in range(count):
            training.iteration()
        assert seen.probe.counter.steps == count
        assert seen.probe.phases.phase is not Phase.OPTIMIZER
    assert training.threads.isdisjoint({threading.get_ident()})
    assert (seen.state.step, seen.state.micro_steps) == (count, 2 * count)
    seen.check_that_phases_fill_the_time()
    totals = {event.step: event.total for event in seen.all(GradientsMeasured) if event.total is not None}
    assert len(totals) >= 5
    for step, total in totals.items():
        assert total == pytest.approx(training.norms[step - 1], rel=1e-5)


def test_run_of_so_many_steps_ends_within_backward() -> None:
    with watched(stop_after=2) as seen:
        training = Training()
        training.iteration()
        with pytest.raises(SystemExit):
            training.iteration()
    assert seen.state.step == 2


def test_stepping_thread_of_script_is_not_heard() -> None:
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.01)

    def step_elsewhere() -> None:
        thread = threading.Thread(target=optimizer.step)
        thread.start()
        thread.join()

    with watched() as seen:
        training = Training()
        training.iteration()
        Nested.apply(torch.zeros(1, requires_grad=True), 0, step_elsewhere).sum().backward()
    assert seen.state.step == 1
