"""Generators of a data set that each worker has a copy of, and those that get another state."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

from gradtui.probe.torch_private.copied_generators import copied_generator


class Noisy(Dataset[float]):
    """Draws from its generator in a method of another name."""

    def __init__(self, generator: object) -> None:
        self.generator: Any = generator

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return self.noise() + index

    def noise(self) -> float:
        return sum(self.generator.random() for _ in range(2))


class Seeded(Noisy):
    def noise(self) -> float:
        self.generator.seed(1)
        return super().noise()


class Renewed(Noisy):
    def noise(self) -> float:
        if self.generator is None:
            self.generator = random.Random(int(torch.initial_seed()))
        return 0.0


class ForEachWorker(Noisy):
    def noise(self) -> float:
        return float(get_worker_info().id) + self.generator.random()  # type: ignore[union-attr]


class Unused(Noisy):
    def noise(self) -> float:
        return 0.0

    def split(self) -> float:
        return float(self.generator.random())


class DrawnInMain(Noisy):
    def begin_epoch(self) -> None:
        self.generator.random()


def found(data: Dataset[float], workers: int = 2, worker_init_fn: Callable[[int], None] | None = None) -> str:
    return copied_generator(SimpleNamespace(_dataset=data, _num_workers=workers, _worker_init_fn=worker_init_fn))


@pytest.mark.parametrize(
    "make",
    [random.Random, np.random.RandomState, np.random.default_rng, torch.Generator],
    ids=["Python", "NumPy", "NumPy's newer one", "torch"],
)
def test_a_generator_that_is_copied(make: Callable[[], object]) -> None:
    assert found(Noisy(make())) == "Noisy.generator"
    assert found(Subset(Noisy(make()), [0, 1])) == "Noisy.generator"
    assert found(Noisy(make()), workers=0) == ""
    assert found(Noisy(make()), worker_init_fn=print) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Seeded, Renewed, ForEachWorker, Unused, DrawnInMain])
def test_a_generator_with_a_state_of_its_own(kind: type[Noisy]) -> None:
    assert found(kind(random.Random(0))) == ""


@pytest.mark.parametrize("generator", [random, np.random, random.SystemRandom(), None])
def test_no_generator_that_is_copied(generator: object) -> None:
    assert found(Noisy(generator)) == ""


def test_the_names_are_those_of_a_loader() -> None:
    iterator = iter(DataLoader(Noisy(random.Random(0)), num_workers=1))
    assert copied_generator(iterator) == "Noisy.generator"
    assert len({float(batch) for batch in iterator}) == 4


def test_workers_draw_the_same_numbers() -> None:
    loader = DataLoader(Noisy(random.Random(0)), num_workers=2)
    first, again = ([float(batch) for batch in loader] for _ in range(2))
    assert first == again
    assert first[1] - first[0] == 1
