"""The newest norms of a run are those of its last step, wherever they can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import ScriptedCommands, Watched, watched
from torch import nn

from gradtui.probe.runtime.outcome import RunStopped
from gradtui.protocol.commands import Pause, Resume, RunSteps

X = torch.linspace(-1, 1, 24).view(6, 4)
SELDOM = 1e-9
"""A budget with which no step is sampled that does not have to be, after the first ones."""
INTERVAL = 60


@pytest.fixture(autouse=True)
def norms_are_read_seldom(set_reading_interval: Callable[[int], None]) -> None:
    """As where a reading takes a large share of a step."""
    set_reading_interval(INTERVAL)


def steps_measured(seen: Watched) -> list[int]:
    """The steps whose norms were read."""
    return [step for step, _ in seen.totals()]


def total(model: nn.Module) -> float:
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().item()


class Loop:
    """Steps of a small model, and the norm of all its gradients in each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.totals: list[float] = []

    def step(self, x: torch.Tensor = X, *, clears_after: bool = False) -> None:
        if not clears_after:
            self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.totals.append(total(self.model))
        self.optimizer.step()
        if clears_after:
            self.optimizer.zero_grad()

    def steps(self, count: int, *, clears_after: bool = False) -> None:
        for _ in range(count):
            self.step(clears_after=clears_after)


@pytest.mark.parametrize("leaves", ["detach", "report"])
def test_remaining_gradients_are_of_last_step(leaves: str) -> None:
    loop = Loop()
    with watched(budget=SELDOM) as seen:
        for _ in range(200):
            loop.step()
        if leaves == "report":
            seen.probe.report()
            assert steps_measured(seen)[-1] == 200
    assert steps_measured(seen)[-1] == 200
    assert len(steps_measured(seen)) < 50
    assert seen.state.gradient_norm.last == pytest.approx(loop.totals[-1], rel=1e-5)
    assert seen.norms() == {
        name: pytest.approx(parameter.grad.norm().item(), rel=1e-5)  # type: ignore[union-attr]
        for name, parameter in loop.model.named_parameters()
    }


@pytest.mark.parametrize("is_skipped", [False, True])
def test_behind_loss_scaler_last_executed_step_is_measured(is_skipped: bool) -> None:
    loop = Loop()

    def step(x: torch.Tensor) -> None:
        loop.optimizer.zero_grad()
        scaler.scale(loop.model(x).square().mean()).backward()
        scaler.step(loop.optimizer)
        scaler.update()

    with watched(budget=SELDOM) as seen:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(200):
            step(X)
        if is_skipped:
            step(X * torch.inf)
    # The scaler divides the gradients by its factor before the optimizer applies them.
    assert (steps_measured(seen)[-1] == 200) != is_skipped
    if not is_skipped:
        assert seen.state.gradient_norm.last == pytest.approx(total(loop.model), rel=1e-5)


def test_self_unscaled_gradients_are_not_read_afterwards() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watched(budget=SELDOM) as seen:
        for _ in range(200):
            optimizer.zero_grad()
            scaler.scale(model(X).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert steps_measured(seen)[-1] < 200
    assert seen.state.gradient_norm.last is not None
    assert seen.state.gradient_norm.last < 100


@pytest.mark.parametrize("after", ["cleared", "zeroed", "half a step", "another backward"])
def test_gradients_from_other_steps_are_not_read(after: str) -> None:
    loop = Loop()
    with watched(budget=SELDOM) as seen:
        for _ in range(200):
            loop.step(clears_after=after == "cleared")
        if after == "zeroed":
            loop.optimizer.zero_grad(set_to_none=False)
        elif after == "half a step":
            loop.model(X)
        elif after == "another backward":
            loop.model(X).sum().backward()
    assert steps_measured(seen)[-1] < 200
    norms = [each for each in seen.norms().values() if each is not None]
    assert len(norms) == 2
    assert 0 not in norms


def test_of_so_many_steps_last_one_is_measured() -> None:
    loop = Loop()
    with watched(budget=SELDOM, stop_after=150) as seen, pytest.raises(RunStopped):
        loop.steps(300, clears_after=True)
    assert steps_measured(seen)[-1] == 150
    assert seen.state.gradient_norm.last == pytest.approx(loop.totals[-1], rel=1e-5)


def test_single_steps_of_person_are_measured() -> None:
    acts: list[Callable[..., object]] = [
        lambda queue: queue.submit(lambda number: RunSteps(number, 1)) for _ in range(3)
    ]
    acts.append(lambda queue: queue.submit(lambda number: RunSteps(number, 60)))
    commands = ScriptedCommands([*acts, lambda queue: queue.submit(Resume)])
    loop = Loop()
    with watched(budget=SELDOM, commands=commands) as seen:
        for _ in seen.steps(200, {100: Pause}):
            loop.step()
    measured = set(steps_measured(seen))
    assert {101, 102, 103} <= measured
    # Of sixty those that a person sees the end of.
    assert set(range(154, 164)) <= measured
    assert not set(range(105, 150)) & measured
