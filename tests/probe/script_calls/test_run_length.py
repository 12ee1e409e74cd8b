"""How many steps the script is going to make, against the number that it makes."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.script_calls import run_length
from gradtui.probe.script_calls.scheduled_steps import scheduled_steps
from gradtui.protocol.events import RunLengthFound

EPOCHS = 5


@pytest.fixture(autouse=True)
def _looks_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_length, "_BETWEEN_NS", 0)
    monkeypatch.setattr("gradtui.probe.steps.step_counter.FLUSH_NS", 0)


class Training:
    def __init__(self) -> None:
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def learn(self, x: torch.Tensor, *, steps: bool = True) -> None:
        self.model(x).mean().backward()
        if steps:
            self.optimizer.step()
            self.optimizer.zero_grad()


def loader(batches: int = 8) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(2 * batches, 4)), batch_size=2)


def steps() -> int:
    training, arguments = Training(), Namespace(steps=20)
    for _step in range(2 * arguments.steps):
        training.learn(torch.randn(2, 4))
    return 40


def epochs() -> int:
    training = Training()
    for _epoch in range(EPOCHS):
        for (x,) in loader():
            training.learn(x)
    return EPOCHS * 8


def epoch_in_a_function_with_accumulation() -> int:
    training = Training()

    def train_epoch() -> None:
        for at, (x,) in enumerate(loader()):
            training.learn(x, steps=at % 2 == 1)

    for _epoch in range(1, EPOCHS + 1):
        train_epoch()
    return EPOCHS * 4


def wrapped() -> int:
    def tqdm(iterable: Any, **_: Any) -> Any:
        return iterable

    training = Training()
    for _at, _step in enumerate(tqdm(range(30), desc="steps")):
        training.learn(torch.randn(2, 4))
    return 30


def condition() -> int:
    training, step, config = Training(), 0, {"steps": 30}
    while step < config["steps"]:
        training.learn(torch.randn(2, 4))
        step += 1
    return 30


def arguments() -> int:
    training, words = Training(), ["train.py", "3"]
    for _epoch in range(int(words[1])):
        for _at in range(len(words) * 5):
            training.learn(torch.randn(2, 4))
    return 30


def after_other_steps() -> int:
    training = Training()
    for _warmup in range(4):
        training.learn(torch.randn(2, 4))
    for _step in range(10, 40):
        training.learn(torch.randn(2, 4))
    return 34


def schedule() -> int:
    training = Training()
    scheduler = lr_scheduler.OneCycleLR(training.optimizer, 1e-3, total_steps=30)

    def endless() -> Iterator[int]:
        yield from range(30)

    for _ in endless():
        training.learn(torch.randn(2, 4))
        scheduler.step()
    return 30


def schedule_by_epoch() -> int:
    training = Training()
    scheduler = lr_scheduler.CosineAnnealingLR(training.optimizer, T_max=EPOCHS)
    for _ in "epochs"[:EPOCHS]:
        for (x,) in loader():
            training.learn(x)
        scheduler.step()
    return EPOCHS * 8


@pytest.mark.parametrize(
    "script",
    [
        steps,
        epochs,
        epoch_in_a_function_with_accumulation,
        wrapped,
        condition,
        arguments,
        after_other_steps,
        schedule,
        schedule_by_epoch,
    ],
)
def test_the_length_of_a_run(script: Callable[[], int]) -> None:
    with watched(budget=100.0) as seen:
        made = script()
    found = [event.steps for event in seen.all(RunLengthFound)]
    assert found
    assert found[-1] == made
    # An event tells what is new: it stays what it is in the loop that ends the run.
    assert made not in found[:-1]


class Trainer:
    """A trainer with the attributes of transformers' or Lightning's, where it has made 7 steps."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__ |= attributes


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        (Trainer(state=Namespace(max_steps=120, global_step=7)), (120, 7)),
        (Trainer(state=Namespace(max_steps=0, global_step=7)), None),
        (
            Trainer(max_steps=-1, global_step=7, max_epochs=6, num_training_batches=41, accumulate_grad_batches=2),
            (126, 7),
        ),
        (
            Trainer(max_steps=100, global_step=7, max_epochs=6, num_training_batches=40, accumulate_grad_batches=1),
            (100, 7),
        ),
        (Trainer(max_steps=-1, global_step=7, max_epochs=-1, num_training_batches=40), None),
        (Trainer(max_steps=-1, global_step=7, max_epochs=2, num_training_batches=float("inf")), None),
    ],
)
def test_the_plan_of_a_trainer(trainer: object, expected: tuple[int, int] | None) -> None:
    assert run_length._plan_of_trainer(trainer) == expected


def unknown_number() -> None:
    training = Training()
    for x in torch.randn(20, 2, 4):
        training.learn(x)


def stops_by_itself() -> None:
    training, at = Training(), 0
    while True:
        training.learn(torch.randn(2, 4))
        at += 1
        if at == 20:
            break


def in_a_package() -> None:
    """A package with a loop of its own stands between the script's loop and the steps."""
    training, names = Training(), dict[str, Any]()
    source = "def fit(learn, inputs):\n    for each in inputs:\n        learn(each)\n"
    exec(compile(source, os.path.join("", "lib", "site-packages", "trainers", "fit.py"), "exec"), names)
    for _fold in range(3):
        names["fit"](training.learn, torch.randn(8, 2, 4))


@pytest.mark.parametrize("script", [unknown_number, stops_by_itself, in_a_package])
def test_an_unknown_length(script: Callable[[], None]) -> None:
    with watched(budget=100.0) as seen:
        script()
    assert not seen.all(RunLengthFound)


OPTIMIZER = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)


def warmup_then_cosine() -> lr_scheduler.LRScheduler:
    warmup = lr_scheduler.LinearLR(OPTIMIZER, 0.1, total_iters=10)
    return lr_scheduler.SequentialLR(
        OPTIMIZER, [warmup, lr_scheduler.CosineAnnealingLR(OPTIMIZER, 90)], milestones=[10]
    )


def of_transformers(step: int, *, num_training_steps: int) -> float:
    return 1 - step / num_training_steps


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: lr_scheduler.OneCycleLR(OPTIMIZER, 1e-3, epochs=3, steps_per_epoch=40), 120),
        (lambda: lr_scheduler.CosineAnnealingLR(OPTIMIZER, T_max=50), 50),
        (lambda: lr_scheduler.PolynomialLR(OPTIMIZER, total_iters=70), 70),
        (lambda: lr_scheduler.LinearLR(OPTIMIZER, 1.0, 0.0, total_iters=60), 60),
        (lambda: lr_scheduler.LinearLR(OPTIMIZER, 0.1, 1.0, total_iters=60), None),
        (warmup_then_cosine, 100),
        (lambda: lr_scheduler.LambdaLR(OPTIMIZER, partial(of_transformers, num_training_steps=80)), 80),
        (lambda: lr_scheduler.LambdaLR(OPTIMIZER, lambda step: 0.9**step), None),
        (lambda: lr_scheduler.CosineAnnealingWarmRestarts(OPTIMIZER, 10), None),
        (lambda: lr_scheduler.StepLR(OPTIMIZER, 10), None),
    ],
)
def test_the_steps_of_a_schedule(make: Callable[[], lr_scheduler.LRScheduler], expected: int | None) -> None:
    assert scheduled_steps(make()) == expected
