"""The batch with a NaN is named by its place in the epoch and by its samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from helpers.training import square_step
from helpers.watched import watched
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from gradtui.probe.gradients import newest_backward
from gradtui.protocol.events import NonFiniteFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import nonfinite_text

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
            square_step(model, optimizer, values.view(-1, 1))
    return seen.all(NonFiniteFound)[0], batches


def place_of_nan(batches: list[list[float]]) -> int:
    return next(number for number, batch in enumerate(batches, 1) if any(each != each for each in batch))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_shuffled_samples(workers: int) -> None:
    torch.manual_seed(3)
    found, batches = found_in(DataLoader(TensorDataset(DATA), batch_size=4, shuffle=True, num_workers=workers))
    number = place_of_nan(batches)
    (batch,) = found.batches
    assert (batch.number, batch.count, batch.sample_count) == (number, 10, 4)
    assert batch.samples == tuple(BAD if each != each else int(each) for each in batches[number - 1])


def test_batches_of_a_sampler_of_batches() -> None:
    sampler = BatchSampler(RandomSampler(range(40)), 8, drop_last=True)
    found, batches = found_in(DataLoader(TensorDataset(DATA), batch_sampler=sampler))
    (batch,) = found.batches
    assert (batch.number, batch.count) == (place_of_nan(batches), 5)
    assert BAD in batch.samples


def test_samples_that_are_not_batched() -> None:
    found, _ = found_in(DataLoader(TensorDataset(DATA), batch_size=None))
    (batch,) = found.batches
    assert (batch.number, batch.count, batch.samples) == (BAD + 1, 40, (BAD,))


def test_a_stream_has_no_indices() -> None:
    found, _ = found_in(DataLoader(Stream(), batch_size=4))
    (batch,) = found.batches
    assert (batch.number, batch.count, batch.epoch, batch.samples) == (BAD // 4 + 1, None, 1, ())
    assert batch.is_stream
    assert "a stream has no indices" in nonfinite_text(found)


def test_batch_that_was_fetched_ahead_is_not_named() -> None:
    found, _ = found_in(OneAhead(DataLoader(TensorDataset(DATA), batch_size=4)))
    assert found.batches == ()


def made_bad_in_backward(values: Tensor, outputs: Tensor) -> Tensor:
    """Return a finite loss whose gradient is NaN if these values have the sample: the square root of 0."""
    zero = (values == BAD).any()
    return (outputs * 0).square().mean().sqrt() if zero else outputs.square().mean()


def found_with(steps_of: Callable[[Tensor], None]) -> tuple[NonFiniteFound, list[list[float]]]:
    """Train with `steps_of` each batch for some epochs; return what was found, and the batches of its epoch."""
    torch.manual_seed(3)
    data = TensorDataset(torch.arange(40, dtype=torch.float32).view(40, 1))
    batches: list[list[float]] = []
    with watched(budget=100.0) as seen:
        for (values,) in DataLoader(data, batch_size=4, shuffle=True):
            batches.append(values.flatten().tolist())
            steps_of(values)
    return seen.all(NonFiniteFound)[0], batches


def place_of_bad(batches: list[list[float]]) -> int:
    return next(number for number, batch in enumerate(batches, 1) if BAD in batch)


def test_gradient_that_is_nan_with_finite_loss() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step(values: Tensor) -> None:
        optimizer.zero_grad()
        made_bad_in_backward(values, model(values)).backward()
        optimizer.step()

    found, batches = found_with(step)
    assert found.phase is Phase.BACKWARD
    (batch,) = found.batches
    assert (batch.number, batch.count) == (place_of_bad(batches), 10)
    assert batch.samples == tuple(map(int, batches[place_of_bad(batches) - 1]))


@pytest.mark.parametrize("of_second", [False, True])
def test_two_optimizers_that_step_with_each_batch(of_second: bool) -> None:
    models = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-6) for model in models]

    def step(values: Tensor) -> None:
        for number, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            outputs = model(values)
            (outputs.square().mean() * (float("nan") if number == of_second and BAD in values else 1)).backward()
            optimizer.step()

    found, batches = found_with(step)
    assert found.phase is Phase.FORWARD
    (batch,) = found.batches
    assert batch.number == place_of_bad(batches)
    assert BAD in batch.samples


@pytest.mark.parametrize("is_logged", [True, False])
def test_gradients_that_accumulate_over_two_batches(is_logged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the values of each backward were read, it is known which of the batches it was."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    backwards = itertools.count(1)
    if not is_logged:
        monkeypatch.setattr(newest_backward, "find_slopes", lambda *_: ({}, ()))

    def step(values: Tensor) -> None:
        made_bad_in_backward(values, model(values)).backward()
        if next(backwards) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()

    found, batches = found_with(step)
    place, (batch,) = place_of_bad(batches), found.batches
    assert found.phase is Phase.BACKWARD
    if is_logged:
        assert (batch.number, batch.before) == (place, 0)
        assert BAD in batch.samples
    else:
        assert (batch.number, batch.before, batch.samples) == ((place + 1) // 2 * 2, 1, ())


@pytest.mark.parametrize("workers", [0, 1])
def test_the_epoch_is_that_of_the_training(workers: int) -> None:
    """An evaluation on the same samples, without gradients, is none."""
    data = TensorDataset(torch.arange(8, dtype=torch.float32).view(8, 1))
    loader = DataLoader(data, batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with watched(budget=100.0) as seen:
        for epoch in (1, 2, 3):
            for number, (values,) in enumerate(loader, 1):
                optimizer.zero_grad()
                (model(values).square().mean() * (float("nan") if (epoch, number) == (3, 2) else 1)).backward()
                optimizer.step()
            with torch.no_grad():
                for (values,) in loader:
                    model(values)
    (found,) = seen.all(NonFiniteFound)
    (batch,) = found.batches
    assert (batch.epoch, batch.number, batch.count, batch.samples) == (3, 2, 2, (4, 5, 6, 7))
