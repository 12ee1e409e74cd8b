"""Training runs of which changes are tried, in tests: a model with what draws random numbers and keeps statistics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command
from helpers.watched import Watched, watched

STEPS, AT, TRIED = 40, 6, 12
"""Steps of a run without a try, the step before whose forward it is asked for, and the steps of a side."""
BEGINS = AT + 1
"""The steps that were made when the first side begins."""


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Draws from three generators for each sample, as augmentations do."""

    def __init__(self, size: int) -> None:
        values = torch.Generator().manual_seed(5)
        self.x, self.size = torch.randn(size, 6, generator=values), size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = random.random() + float(np.random.random())
        return self.x[index] + 0.1 * noise + 0.1 * torch.randn(6), self.x[index, :2].sum()


class Run:
    """A training, and the batches that its steps have seen."""

    def __init__(
        self, kind: Callable[[Any], Optimizer], samples: int = 8 * STEPS, workers: int = 0, scheduler: Any = None
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential()
        self.model.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.model.head = nn.Linear(8, 1)
        self.optimizer = kind(self.model.parameters())
        self.scheduler = (scheduler or (lambda optimizer: StepLR(optimizer, 5, 0.7)))(self.optimizer)
        self.loader = DataLoader(Pictures(samples), batch_size=8, shuffle=True, num_workers=workers)
        self.seen: list[float] = []
        self.losses: list[float] = []
        self.epoch_ends: Callable[[], None] = lambda: None

    def step(self, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        self.seen.append(float(x.double().sum()))
        self.optimizer.zero_grad()
        loss = (self.model(x).squeeze(1) - y + 0.01 * random.random()).square().mean()
        self.losses.append(loss.item())
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()

    def epochs(self, count: int = 1, before: Callable[[int], None] = lambda _: None) -> None:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        done = 0
        for _ in range(count):
            for batch in self.loader:
                before(done)
                self.step(batch)
                done += 1
            self.epoch_ends()
        self.random = torch.get_rng_state(), random.getstate(), *np.random.get_state()[1:3]  # type: ignore[misc]

    def values(self) -> list[Any]:
        return [
            self.model.state_dict(),
            self.optimizer.state_dict(),
            self.scheduler.state_dict(),
            [each.requires_grad for each in self.model.parameters()],
            [each.grad for each in self.model.parameters()],
            self.random,
        ]


def nothing() -> None:
    """In place of a step of the scheduler after each batch."""


def adamw(parameters: Any) -> Optimizer:
    return AdamW(parameters, 0.01, weight_decay=0.1)


def sgd(parameters: Any) -> Optimizer:
    return SGD(parameters, 0.05, momentum=0.9, weight_decay=0.01)


def tried(run: Run, make: Callable[[int], Command], *, epochs: int = 1, commands: Any = None, at: int = AT) -> Watched:
    with watched(commands=commands) as seen:
        run.epochs(epochs, lambda done: seen.submit(make) if done == at else None)  # type: ignore[arg-type,return-value]
    return seen


def freeze_body(run: Run) -> None:
    """What `freeze body` does, in plain torch: BatchNorm of a frozen module is held in eval mode."""
    for parameter in run.model.body.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    run.model.body[1].eval()


def result(seen: Watched) -> ev.ChangeTried:
    (found,) = seen.all(ev.ChangeTried)
    return found


def without(batches: list[float], first: int, count: int) -> list[float]:
    return batches[:first] + batches[first + count :]


def ahead(run: Run, count: int, before: Callable[[int], None] = lambda _: None) -> None:
    """Train while so many further batches are fetched, as accelerate does with one."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    batches, done = iter(run.loader), 0
    held = [next(batches) for _ in range(count)]
    while held:
        held += [next(batches, None)]  # type: ignore[arg-type,list-item]
        if held[-1] is None:
            del held[-1]
        before(done)
        run.step(held.pop(0))
        done += 1
    run.random = torch.get_rng_state(), random.getstate(), *np.random.get_state()[1:3]  # type: ignore[misc]
