"""How many steps of an epoch are left."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.steps.epochs import Epochs
from gradtui.probe.steps.step_counter import StepCounter


def loader_of(batches: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.zeros(2 * batches, 1)), batch_size=2)


def test_epoch_is_known_from_first_to_last_step() -> None:
    counter = StepCounter()
    epochs = Epochs(counter)
    assert epochs.progress == (None, None)
    seen = []
    iterator = iter(loader_of(4))
    for _ in iterator:
        epochs.fetched(iterator)
        seen.append(epochs.progress)
        counter.micro_steps += 1
        counter.stepped(0)
        seen.append(epochs.progress)
    assert seen == [
        (None, None), (4, 3),
        (4, 2), (4, 2),
        (4, 1), (4, 1),
        (4, 0), (4, 0),
    ]  # fmt: skip
    del iterator
    assert epochs.progress == (None, None)


def test_the_batches_of_an_evaluation_are_no_steps() -> None:
    counter = StepCounter()
    epochs = Epochs(counter)
    counter.micro_steps += 1
    counter.stepped(0)
    evaluation = iter(loader_of(3))
    for _ in evaluation:
        epochs.fetched(evaluation)
        assert epochs.progress == (None, None)


def test_two_batches_step_are_half_as_many_steps() -> None:
    counter = StepCounter()
    epochs = Epochs(counter)
    iterator = iter(loader_of(8))
    for number, _ in enumerate(iterator):
        epochs.fetched(iterator)
        counter.micro_steps += 1
        if number % 2:
            counter.stepped(0)
        if number == 3:
            break
    assert epochs.progress == (4, 2)
