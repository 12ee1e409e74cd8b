"""GT225 under the probe: DataLoaders whose sampler shuffles, and those that give another order or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.matches_after import matches_after
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DATA = TensorDataset(torch.randn(40, 4))


def found(
    make: Callable[[], Sampler[int]],
    begin: Callable[[Sampler[int], int], object] = lambda sampler, epoch: None,
    *,
    epochs: int = 3,
    batch_size: int = 8,
) -> list[tuple[object, object]]:
    """Return the sampler and the number of epochs that are reported of a training."""

    def train() -> None:
        sampler = make()
        loader = DataLoader(DATA, batch_size, sampler=sampler)
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for epoch in range(epochs):
            begin(sampler, epoch)
            for (inputs,) in loader:
                net(inputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    return [(each.evidence["sampler"], each.evidence["epochs"]) for each in matches_after("GT225", train)]


def distributed(*, shuffle: bool = True) -> Sampler[int]:
    return DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=shuffle)


@pytest.mark.parametrize("batch_size", [1, 8, 20])
def test_no_set_epoch(batch_size: int) -> None:
    assert found(distributed, batch_size=batch_size) == [("DistributedSampler", 3)]


def test_the_same_seed_before_each_epoch() -> None:
    assert found(lambda: RandomSampler(DATA), lambda _, epoch: torch.manual_seed(0), epochs=4) == [("RandomSampler", 4)]


def test_other_orders() -> None:
    assert found(distributed, lambda sampler, epoch: sampler.set_epoch(epoch)) == []  # type: ignore[attr-defined]
    assert found(lambda: RandomSampler(DATA)) == []
    assert found(lambda: RandomSampler(DATA, generator=torch.Generator().manual_seed(1))) == []


def test_an_order_that_is_not_shuffled() -> None:
    assert found(lambda: SequentialSampler(DATA)) == []
    assert found(lambda: distributed(shuffle=False)) == []


def test_an_evaluation_between_the_epochs() -> None:
    def train() -> None:
        loaders = [DataLoader(DATA, 8, shuffle=True), DataLoader(DATA, 8, sampler=distributed())]
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            for (inputs,) in loaders[0]:
                net(inputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            for (inputs,) in loaders[1]:
                with torch.no_grad():
                    net(inputs)

    assert matches_after("GT225", train) == []
