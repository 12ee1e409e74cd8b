"""A training whose values can be read after each step, for the tests of kept states."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from gradtui.protocol.commands import Command
from helpers.watched import Watched, watched

Make = Callable[[int], Command]
STEPS = 12
X = torch.linspace(-1, 1, 30).view(5, 6)


class Network(nn.Module):
    """Has what a return must restore: statistics, dropout, a frozen part, and a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.average = torch.zeros(8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.frozen(self.encoder(x))
        self.average.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
        result: Tensor = self.head(hidden)
        return result


class Run:
    """A training whose values can be read after each step."""

    def __init__(
        self,
        kind: Callable[[Any], Optimizer] = lambda parameters: SGD(parameters, 0.1, momentum=0.9),
        schedule: Callable[[Optimizer], Any] = lambda optimizer: StepLR(optimizer, 3),
    ) -> None:
        self.model = Network()
        self.optimizer = kind([each for each in self.model.parameters() if each.requires_grad])
        self.scheduler = schedule(self.optimizer)
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)

    def step(self) -> None:
        # The boundary is at the first forward. The batch is there by then, as a loader stands where it is: all are equal.
        self.optimizer.zero_grad()
        result = self.model(X)
        noise = random.random() + np.random.random()
        loss = (result + noise + torch.randn(5, 3)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step(*([loss.item()] if isinstance(self.scheduler, ReduceLROnPlateau) else []))

    def values(self) -> dict[str, Any]:
        """Everything that the run consists of, as plain values."""
        gradients = {name: each.grad for name, each in self.model.named_parameters()}
        return {
            "model": {name: each.clone() for name, each in self.model.state_dict().items()},
            "average": self.model.average.clone(),
            "flags": [each.requires_grad for each in self.model.parameters()],
            "modes": [each.training for each in self.model.modules()],
            "gradients": {name: None if each is None else each.clone() for name, each in gradients.items()},
            "optimizer": clone(self.optimizer.state_dict()),
            "scheduler": {
                name: value
                for name, value in self.scheduler.state_dict().items()
                if isinstance(value, (int, float, list))
            },
            "rng": (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()),  # type: ignore[index]
        }


def clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: clone(each) for key, each in value.items()}
    return [clone(each) for each in value] if isinstance(value, list) else value


def trained(run: Run, at: Mapping[int, list[Make]], steps: int = STEPS) -> tuple[Watched, list[dict[str, Any]]]:
    """Train; `at` has the commands to submit before the steps with these indexes. Return the values after each step."""
    values = []
    with watched() as seen:
        for step in range(steps):
            for make in at.get(step, ()):
                seen.submit(make)
            run.step()
            values.append(run.values())
    return seen, values
