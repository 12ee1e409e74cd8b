"""The samples and tokens of training, against the script's own count."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gradtui.probe.sampling.batch_sizes import input_size
from gradtui.protocol.events import SamplesMeasured
from gradtui.run.state.time.throughput_of_run import mean_throughput

ALIVE: list[object] = []
"""What would otherwise be freed before the last measurement."""
DATA = TensorDataset(torch.randn(500, 8))


class Training:
    """A model, its optimizer, and the number of samples that it has learned from."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.samples = 0

    def learn(self, x: Tensor, *, steps: bool = True) -> None:
        self.model(x).square().mean().backward()
        self.samples += len(x)
        if steps:
            self.optimizer.step()
            self.optimizer.zero_grad()


def loader(size: int = 16, samples: int = 500, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(DATA.tensors[0][:samples]), batch_size=size, **options)


def measured_in(script: Callable[[], int]) -> tuple[SamplesMeasured, int]:
    # Most steps are only buffered.
    with watched(budget=0.0) as seen:
        samples = script()
    return seen.all(SamplesMeasured)[-1], samples


def plain() -> int:
    training = Training()
    for _ in range(3):
        for (x,) in loader(shuffle=True):
            training.learn(x)
    return training.samples


def short_epochs() -> int:
    training, batches = Training(), loader(16, 40)
    for _ in range(20):
        for (x,) in batches:
            training.learn(x)
    return training.samples


def with_workers() -> int:
    training = Training()
    for _ in range(2):
        for (x,) in loader(num_workers=1):
            training.learn(x)
    return training.samples


def accumulating() -> int:
    training = Training()
    for _ in range(3):
        for at, (x,) in enumerate(loader(10)):
            training.learn(x, steps=at % 4 == 3)
    return training.samples


def evaluating() -> int:
    training, validation = Training(), loader(50)
    for _ in range(3):
        for (x,) in loader():
            training.learn(x)
        training.model.eval()
        with torch.no_grad():
            for at, (x,) in enumerate(validation):
                training.model(x)
                if at == 4:
                    break
        training.model.train()
    return training.samples


def one_ahead() -> int:
    training, batches = Training(), iter(loader())
    ALIVE.append(batches)
    (present,) = next(batches)
    for (later,) in islice(batches, 10):
        training.learn(present)
        present = later
    return training.samples


def two_loaders() -> int:
    training = Training()
    for _ in range(3):
        for (x,), (y,) in zip(loader(10, 200), loader(25)):
            training.learn(torch.cat([x, y]))
    return training.samples


def generator_and_discriminator() -> int:
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    g, d = (torch.optim.SGD(each.parameters(), lr=1e-3) for each in (generator, discriminator))
    samples = 0
    for _ in range(3):
        for (x,) in loader():
            made = generator(torch.randn(len(x), 4))
            discriminator(x).mean().backward()
            discriminator(made.detach()).mean().backward()
            d.step()
            d.zero_grad()
            discriminator(made).mean().backward()
            g.step()
            g.zero_grad()
            samples += len(x)
    return samples


@pytest.mark.parametrize(
    "script",
    [plain, short_epochs, with_workers, accumulating, evaluating, one_ahead, two_loaders, generator_and_discriminator],
)
def test_each_batch_of_a_loader_is_counted(script: Callable[[], int]) -> None:
    measured, samples = measured_in(script)
    assert measured.is_counted
    assert measured.samples == pytest.approx(samples, rel=0.005)


def test_steps_without_loader_come_before_those_with_one() -> None:
    """As those of a pretraining in the same script."""
    training = Training()
    with watched(budget=0.0) as seen:
        for number in range(300):
            training.learn(DATA.tensors[0][:100])
            if number % 50 == 0:
                seen.probe.report()
        for (x,) in loader(shuffle=True):
            training.learn(x)
            seen.probe.report()
    measured = seen.all(SamplesMeasured)
    samples = [each.samples for each in measured]
    assert samples == sorted(samples)
    assert all(each.recent_samples >= 0 for each in measured)
    assert measured[-1].samples == training.samples
    assert not measured[-1].is_counted


def test_samples_second_against_clock_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    ends, samples = [], []
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(6):
            for (x,) in loader(24):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                ends.append(perf_counter())
                samples.append(len(x))
    made = mean_throughput(seen.state)
    assert made.samples is not None
    # The first 16 steps are sampled, which takes gradtui time that the mean leaves out.
    assert made.samples == pytest.approx(sum(samples[20:]) / (ends[-1] - ends[19]), rel=0.2)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(DATA.tensors[0])


def streaming() -> int:
    training = Training()
    for _ in range(3):
        for x in DataLoader(Stream(), batch_size=25):
            training.learn(x)
    return training.samples


def without_a_loader() -> int:
    training = Training()
    for at in range(100):
        training.learn(torch.randn(24, 8), steps=at % 2 == 1)
    return training.samples


def acting_between() -> int:
    training = Training()
    for _ in range(50):
        for _ in range(10):
            training.model(torch.randn(1, 8))
        training.learn(torch.randn(24, 8))
    return training.samples


@pytest.mark.parametrize("script", [streaming, without_a_loader, acting_between])
def test_sampled_inputs_stand_for_all(script: Callable[[], int]) -> None:
    measured, samples = measured_in(script)
    assert not measured.is_counted
    assert measured.has_one_size
    assert measured.samples == samples
    assert measured.recent_samples / measured.recent_steps == pytest.approx(samples / measured.steps)


def test_steps_that_call_the_model_for_each_sample() -> None:
    width, rounds = 16, 60
    model, calls = nn.Linear(width, 1), 0
    with watched(budget=100.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(rounds):
            # Episodes become longer.
            length = 4 if step < 4 else 40
            torch.stack([model(torch.randn(1, width)) for _ in range(length)]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            calls += length
    made = mean_throughput(seen.state)
    assert made is not None
    assert made.samples is None
    # Forward and the gradient of the weight are a product each. A few sampled episodes stand for all.
    assert made.flops == pytest.approx(made.steps * 2 * 2 * width * calls / rounds, rel=0.5)
    assert made.flops_bound == "about"


IDS = torch.zeros(4, 7, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (((torch.zeros(5, 3),), {}), (5, 0)),
        (((), {"input_ids": IDS, "attention_mask": IDS, "labels": IDS}), (4, 28)),
        (((UserDict(input_ids=IDS),), {}), (4, 28)),
        ((([torch.zeros(3, 8, 8), torch.zeros(3, 6, 6)],), {}), (3, 0)),
        (((torch.zeros(6, 2), torch.zeros(6), torch.tensor(0.1)), {}), (6, 0)),
        (((torch.zeros(2, 4, dtype=torch.uint8),), {}), (2, 0)),
        (((torch.zeros(9),), {}), None),
        (((torch.zeros(9), torch.zeros(9, dtype=torch.int64)), {}), (9, 0)),
        (((1, "a"), {}), None),
    ],
)
def test_the_size_of_inputs(arguments: Any, expected: tuple[int, int] | None) -> None:
    assert input_size(arguments) == expected
