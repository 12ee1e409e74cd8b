"""Spikes of the loss and of the norm: of which step they are, and of which batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from helpers.examples import combinations
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from gradtui.probe.runtime import ReadingInterval
from gradtui.protocol.events import SpikeFound, SpikeSettled

BAD = 157
INPUTS = torch.linspace(-1, 1, 240).view(240, 1)
TARGETS = 2 * INPUTS + 0.01 * torch.sin(100 * INPUTS)
WRONG = TARGETS.clone()
WRONG[BAD] = 1e3
SAMPLES = TensorDataset(INPUTS, WRONG)


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(INPUTS, WRONG))


class Loop:
    """A regression by one weight and one bias."""

    def __init__(self, rate: float = 0.1) -> None:
        self.model = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        self.batches: list[list[float]] = []

    def step(self, inputs: Tensor, targets: Tensor, *, clip: float | None = None) -> None:
        self.batches.append(targets.flatten().tolist())
        self.optimizer.zero_grad()
        (self.model(inputs) - targets).square().mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()


def trained_on(loader: object, budget: float = 100.0, **options: float) -> tuple[Watched, Loop]:
    torch.manual_seed(0)
    loop = Loop()
    with watched(budget=budget) as seen:
        for inputs, targets in loader:  # type: ignore[attr-defined]  # any iterable
            loop.step(inputs, targets, **options)
    return seen, loop


@pytest.mark.parametrize(("budget", "workers"), combinations([1e-9, 100.0], [0, 2]))
def test_the_batch_of_a_loss_spike(budget: float, workers: int) -> None:
    torch.manual_seed(4)
    seen, loop = trained_on(DataLoader(SAMPLES, batch_size=4, shuffle=True, num_workers=workers), budget)
    (spike,) = seen.all(SpikeFound)
    place = next(number for number, targets in enumerate(loop.batches, 1) if 1e3 in targets)
    assert (spike.metric, spike.step) == ("loss", place)
    (batch,) = spike.batches
    assert (batch.number, batch.count, batch.epoch) == (place, 60, 1)
    assert [WRONG[index].item() for index in batch.samples] == loop.batches[place - 1]
    (settled,) = seen.all(SpikeSettled)
    assert settled.back_at is not None
    assert (settled.number, settled.back_at > place) == (1, True)


def test_indices_are_those_of_subset_of_loader() -> None:
    order = [*range(239, -1, -1)]
    seen, _ = trained_on(DataLoader(Subset(SAMPLES, order), batch_size=4))
    (batch,) = seen.all(SpikeFound)[0].batches
    assert batch.data_set == "Subset"
    assert BAD in [order[index] for index in batch.samples]


def test_a_stream_has_a_place_only() -> None:
    seen, _ = trained_on(DataLoader(Stream(), batch_size=4))
    (batch,) = seen.all(SpikeFound)[0].batches
    assert (batch.number, batch.is_stream, batch.samples) == (BAD // 4 + 1, True, ())


@pytest.mark.parametrize("budget", [1e-9, 100.0], ids=["buffered", "each step sampled"])
def test_batches_of_two_loaders_are_both_named(budget: float) -> None:
    loop, others = Loop(), DataLoader(TensorDataset(torch.zeros(30, 1)), batch_size=2, shuffle=True)
    with watched(budget=budget) as seen:
        for _ in range(2):
            for (inputs, targets), (_,) in zip(DataLoader(SAMPLES, batch_size=16), others):
                loop.step(inputs, targets)
    spikes = [each.batches for each in seen.all(SpikeFound)]
    assert spikes
    assert {(first.number, second.number, first.count, second.count) for first, second in spikes} == {(10, 10, 15, 15)}
    assert all(BAD in first.samples and second.sample_count == 2 for first, second in spikes)


def test_which_of_the_accumulated_batches_it_was() -> None:
    loop = Loop()
    with watched(budget=1e-9) as seen:
        for number, (inputs, targets) in enumerate(DataLoader(SAMPLES, batch_size=4), 1):
            ((loop.model(inputs) - targets).square().mean() / 4).backward()
            if number % 4 == 0:
                loop.optimizer.step()
                loop.optimizer.zero_grad()
    (spike,) = seen.all(SpikeFound)
    number = BAD // 4 + 1
    assert (spike.step, spike.micro_step) == ((number + 3) // 4, (number - 1) % 4 + 1)
    assert [(batch.number, batch.before) for batch in spike.batches] == [(number, 0)]


def with_gradient(loop: Loop, factor: float, clip: float | None) -> None:
    """Make a step of the loss 1, and of a gradient that has this norm: of the weight, and as much of the bias."""
    loop.optimizer.zero_grad()
    output = loop.model(torch.ones(1, 1))
    (factor / 2**0.5 * (output - output.detach()).sum() + 1.0).backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(loop.model.parameters(), clip)
    loop.optimizer.step()


@pytest.mark.parametrize(("budget", "clip"), combinations([1e-9, 100.0], [None, 0.5]))
def test_spike_of_norm_is_one_before_clipping(
    budget: float, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadingInterval, "steps_until", lambda *_: 0)
    monkeypatch.setattr(ReadingInterval, "every", 1)
    loop = Loop()
    with watched(budget=budget) as seen:
        for step in range(60):
            with_gradient(loop, 100.0 if step == 40 else 1.0 + 0.1 * (step % 3), clip)
    (spike,) = seen.all(SpikeFound)
    assert (spike.metric, spike.step, spike.value, spike.clipped_at) == ("norm", 41, pytest.approx(100), clip)


def test_alternating_optimizers_have_none_unlike_joint_ones() -> None:
    def train(*, in_turns: bool) -> list[SpikeFound]:
        weights = [torch.ones(1, requires_grad=True) for _ in range(2)]
        optimizers = [torch.optim.SGD([weight], lr=1e-3) for weight in weights]
        with watched(budget=100.0) as seen:
            for step in range(60):
                loss = (weights[0] * weights[1]).sum() * (100 if step == 40 else 1)
                if not in_turns:
                    loss.backward()
                for optimizer in optimizers:
                    if in_turns:
                        (weights[0] * weights[1] * (100 if step == 40 else 1)).sum().backward()
                    optimizer.step()
                for optimizer in optimizers:
                    optimizer.zero_grad()
        return [each for each in seen.all(SpikeFound) if each.metric == "loss"]

    assert train(in_turns=True) == []
    assert [each.step for each in train(in_turns=False)] == [81]


@pytest.mark.parametrize(("factor", "count"), [(1.0, 1), (100.0, 0)])
def test_loss_after_jump_of_learning_rate_is_none(factor: float, count: int) -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    with watched(budget=1e-9) as seen:
        for step in range(60):
            if step == 40:
                optimizer.param_groups[0]["lr"] *= factor
            optimizer.zero_grad()
            ((10 if step == 40 else 1) * weight).sum().backward()
            optimizer.step()
    assert len([each for each in seen.all(SpikeFound) if each.metric == "loss"]) == count
