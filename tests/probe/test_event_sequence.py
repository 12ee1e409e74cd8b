"""The order in which `Probe` receives the events of a step and calls its parts, for the loops that people write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.commands import CommandDispatcher
from gradtui.probe.gradients import GradNormCollector
from gradtui.probe.gradients.loss_reader import LossReader
from gradtui.probe.parts import ProbeParts
from gradtui.probe.probe import Probe
from gradtui.probe.runtime import OverheadMeter
from gradtui.probe.sampling import StepSampler
from gradtui.probe.steps import PhaseTracker, StepCounter

X = torch.linspace(-1, 1, 12).view(4, 3)
WARM_UP = 2
"""Steps after which the events of a step repeat."""

BATCH = ["next_batch", "next_batch_post"]
BEGINNING = ["forward_pre", "boundary", "forward_post"]
FORWARD = ["forward_pre", "forward_post"]
BACKWARD = ["backward_pre", "backward_post"]
STEP = ["step_pre", "step_post", "step_end"]
ZERO_GRAD = ["zero_grad_pre", "zero_grad_post"]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `Probe` receives, in order: batches, the events of the hooks, the boundary, the end of a step."""
    received: list[str] = []
    of_step = [(Probe, name) for name in vars(Probe) if name.lstrip("_").startswith("on_")]
    for owner, name in (*of_step, *((ProbeParts, name) for name in vars(ProbeParts) if "batch" in name)):
        monkeypatch.setattr(owner, name, noted(getattr(owner, name), name.lstrip("_").removeprefix("on_"), received))
    return received


def noted(method: Callable[..., Any], name: str, names: list[str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        names.append(name)
        return method(*args, **kwargs)

    return call


class Training:
    """A model, its optimizer, and the losses of the loops."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loss(self, x: Tensor = X) -> Tensor:
        loss: Tensor = self.model(x).square().mean()
        return loss


def simple() -> Iterator[None]:
    training = Training()
    while True:
        training.optimizer.zero_grad()
        training.loss().backward()
        training.optimizer.step()
        yield


def with_a_loader() -> Iterator[None]:
    training = Training()
    while True:
        for (x,) in DataLoader(TensorDataset(X), batch_size=4):
            training.loss(x).backward()
            training.optimizer.step()
        yield


def accumulation() -> Iterator[None]:
    training = Training()
    while True:
        training.loss().backward()
        training.loss().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        yield


def closure() -> Iterator[None]:
    training = Training()

    def evaluate() -> float:
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss.item()

    while True:
        training.optimizer.step(evaluate)
        yield


def gan_steps() -> Iterator[None]:
    generator, discriminator = nn.Linear(3, 3), nn.Linear(3, 1)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    while True:
        discriminator(X).mean().backward()
        of_discriminator.step()
        of_generator.zero_grad()
        discriminator(generator(X)).mean().backward()
        of_generator.step()
        yield


def evaluation_between() -> Iterator[None]:
    training = Training()
    for _ in simple_of(training):
        training.model.eval()
        with torch.no_grad():
            training.loss()
        training.model.train()
        yield


def simple_of(training: Training) -> Iterator[None]:
    while True:
        training.loss().backward()
        training.optimizer.step()
        yield


def without_an_optimizer() -> Iterator[None]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    while True:
        model(X).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        yield


def grad_scaler() -> Iterator[None]:
    training, scaler = Training(), torch.amp.GradScaler("cpu", init_scale=4.0)
    while True:
        scaler.scale(training.loss()).backward()
        scaler.step(training.optimizer)
        scaler.update()
        yield


def grad_scaler_that_skips() -> Iterator[None]:
    training, scaler = Training(), torch.amp.GradScaler("cpu", init_scale=4.0)
    while True:
        scaler.scale(training.loss() * float("inf")).backward()
        scaler.step(training.optimizer)
        scaler.update()
        training.optimizer.zero_grad()
        yield


class Outer(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def nested_steps() -> Iterator[None]:
    training = Training()
    training.optimizer = Outer(training.model.parameters(), lr=0.1)
    return simple_of(training)


def bare_functions() -> Iterator[None]:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    while True:
        (X * weight).square().mean().backward()
        optimizer.step()
        yield


SEQUENCES: dict[Callable[[], Iterator[None]], list[str]] = {
    simple: [*ZERO_GRAD, *BEGINNING, *BACKWARD, *STEP],
    # The request of the next batch ends the epoch.
    with_a_loader: [*BATCH, "batch", *BEGINNING, *BACKWARD, *STEP, *BATCH],
    accumulation: [*BEGINNING, *BACKWARD, *FORWARD, *BACKWARD, *STEP, *ZERO_GRAD],
    # The whole iteration is within the step.
    closure: ["step_pre", "boundary", *ZERO_GRAD, *FORWARD, *BACKWARD, "step_post", "step_end"],
    # Two steps, each with a boundary. The second one calls both models.
    gan_steps: [*BEGINNING, *BACKWARD, *STEP, *ZERO_GRAD, *BEGINNING, *FORWARD, *BACKWARD, *STEP],
    # An evaluation has no boundary.
    evaluation_between: [*BEGINNING, *BACKWARD, *STEP, *FORWARD],
    # Each backward is a step.
    without_an_optimizer: [*BEGINNING, *BACKWARD, "step_end"],
    grad_scaler: [*BEGINNING, *BACKWARD, *STEP],
    # The optimizer's step is not called.
    grad_scaler_that_skips: [*BEGINNING, *BACKWARD, "step_skipped", "step_end", *ZERO_GRAD],
    # Only the outer step ends one.
    nested_steps: [*BEGINNING, *BACKWARD, "step_pre", "step_pre", "step_post", "step_post", "step_end"],
    bare_functions: ["backward_pre", "boundary", "backward_post", *STEP],
}


@pytest.mark.parametrize("loop", SEQUENCES, ids=lambda loop: loop.__name__)
def test_the_events_of_a_step(loop: Callable[[], Iterator[None]], events: list[str]) -> None:
    with watched():
        steps = loop()
        for _ in range(WARM_UP):
            next(steps)
        events.clear()
        next(steps)
        assert events == SEQUENCES[loop]
        steps.close()


def test_the_parts_that_a_sampled_step_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The boundary decides, gradients are read before the step, the sample is finished after it, and then counts are sent."""
    calls: list[str] = []
    parts: dict[type, list[str]] = {
        PhaseTracker: ["forward_began", "on_backward_pre", "on_backward_post", "on_step_pre", "on_step_post"],
        OverheadMeter: ["of_step", "steps_ended"],
        CommandDispatcher: ["cross"],
        StepSampler: ["begin_step", "on_backward", "on_backward_post", "step_begins", "finish_step"],
        GradNormCollector: ["begin_step", "measure", "stepped"],
        LossReader: ["on_backward"],
        StepCounter: ["stepped"],
    }
    for kind, names in parts.items():
        for name in names:
            monkeypatch.setattr(kind, name, noted(getattr(kind, name), f"{kind.__name__}.{name}", calls))
    with watched():
        steps = simple()
        for _ in range(WARM_UP):
            next(steps)
        calls.clear()
        next(steps)
        steps.close()
        assert calls == [
            "OverheadMeter.of_step",
            "CommandDispatcher.cross",
            "StepSampler.begin_step",
            "GradNormCollector.begin_step",
            "PhaseTracker.forward_began",
            "LossReader.on_backward",
            "StepSampler.on_backward",
            "PhaseTracker.on_backward_pre",
            "StepSampler.on_backward_post",
            "PhaseTracker.on_backward_post",
            "GradNormCollector.measure",
            "StepSampler.step_begins",
            "PhaseTracker.on_step_pre",
            "PhaseTracker.on_step_post",
            "StepCounter.stepped",
            "OverheadMeter.steps_ended",
            "GradNormCollector.stepped",
            "StepSampler.finish_step",
        ]
