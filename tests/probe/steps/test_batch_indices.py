"""The batch with a NaN is named by its place in the epoch and by its samples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset
from watched import watched

from gradtui.protocol.events import NonFiniteFound

BAD = 21
DATA = torch.arange(40, dtype=torch.float32).view(40, 1)
DATA[BAD] = float("nan")
"""The value of each other sample is its index."""


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(DATA)


class OneAhead:
    """Fetches a batch before the script uses the one before, as prefetchers do."""

    def __init__(self, loader: DataLoader[Tensor]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Tensor]:
        iterator = iter(self._loader)
        present = next(iterator)
        for later in iterator:
            yield present
            present = later
        yield present


def found_in(loader: object) -> tuple[NonFiniteFound, list[list[float]]]:
    """Train for an epoch; return what was found, and the batches."""
    batches = []
    with watched(budget=100.0) as seen:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for inputs in loader:  # type: ignore[attr-defined]  # any iterable
            values = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
            batches.append(values.flatten().tolist())
            optimizer.zero_grad()
            model(values.view(-1, 1)).square().mean().backward()
            optimizer.step()
    return seen.all(NonFiniteFound)[0], batches


def place_of_nan(batches: list[list[float]]) -> int:
    return next(number for number, batch in enumerate(batches, 1) if any(each != each for each in batch))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_shuffled_samples(workers: int) -> None:
    torch.manual_seed(3)
    found, batches = found_in(DataLoader(TensorDataset(DATA), batch_size=4, shuffle=True, num_workers=workers))
    number = place_of_nan(batches)
    assert found.batch == (number, 10)
    assert found.samples == tuple(BAD if each != each else int(each) for each in batches[number - 1])


def test_batches_of_a_sampler_of_batches() -> None:
    sampler = BatchSampler(RandomSampler(range(40)), 8, drop_last=True)
    found, batches = found_in(DataLoader(TensorDataset(DATA), batch_sampler=sampler))
    assert found.batch == (place_of_nan(batches), 5)
    assert BAD in found.samples


def test_samples_that_are_not_batched() -> None:
    found, _ = found_in(DataLoader(TensorDataset(DATA), batch_size=None))
    assert found.batch == (BAD + 1, 40)
    assert found.samples == (BAD,)


def test_a_stream_has_no_indices() -> None:
    found, _ = found_in(DataLoader(Stream(), batch_size=4))
    assert (found.batch, found.samples) == ((BAD // 4 + 1, None), ())


def test_a_batch_that_was_fetched_ahead_is_not_named() -> None:
    found, _ = found_in(OneAhead(DataLoader(TensorDataset(DATA), batch_size=4)))
    assert (found.batch, found.samples) == (None, ())
