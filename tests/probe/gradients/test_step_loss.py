"""The loss of a step: of one backward, and of several whose gradients accumulate."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from helpers.examples import combinations
from helpers.late_copies import LateCopy
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradtui.probe.gradients.step_loss import DeviceLoss, LossReading, StepLoss
from gradtui.probe.torch_private.loss_factor import LossFactor

X = torch.linspace(-1, 1, 48).view(12, 4)


def loss_of(*losses: float, factor: float | None = None) -> LossReading:
    """The loss of a step whose backwards have these losses, each multiplied by `factor`."""
    loss = StepLoss()
    for each in losses:
        loss.add(each, LossFactor(factor) if factor is not None else None)
    return loss.reading()


def test_without_a_backward_there_is_none() -> None:
    assert (loss_of().value, loss_of().of) == (None, "")


def test_that_of_one_backward() -> None:
    assert (loss_of(0.75).value, loss_of(0.75).of) == (0.75, "")
    # What the script has made of a single loss is its loss, whatever it has divided by.
    assert (loss_of(0.75, factor=0.5).value, loss_of(0.75, factor=0.5).of) == (0.75, "")


def test_of_several_it_is_their_mean() -> None:
    reading = loss_of(1.0, 2.0, 6.0)
    assert (reading.value, reading.of) == (3.0, "mean")


def test_divided_losses_add_up() -> None:
    reading = loss_of(1.0, 2.0, 6.0, factor=1 / 3)
    assert (reading.value, reading.of) == (9.0, "sum")


@pytest.mark.parametrize("factor", [0.5, 1 / 4, 3.0, 0.0, -1 / 3, 1.0])
def test_another_factor_is_no_division_by_their_number(factor: float) -> None:
    reading = loss_of(1.0, 2.0, 6.0, factor=factor)
    assert (reading.value, reading.of) == (3.0, "mean")


def test_last_backwards_of_epoch_may_be_fewer() -> None:
    loss = StepLoss()
    for losses in ([0.5] * 4, [0.25] * 3, [0.75] * 2):
        loss.forget()
        for each in losses:
            loss.add(each, LossFactor(1 / 4))
        reading = loss.reading()
        assert (reading.value, reading.of) == (math.fsum(losses), "sum")


def test_non_finite_loss_makes_step_non_finite() -> None:
    assert math.isnan(loss_of(1.0, math.nan, 2.0).value or 0.0)
    assert loss_of(1.0, math.inf, factor=0.5).value == math.inf


def test_second_optimizer_after_same_backward_has_same_loss() -> None:
    loss = StepLoss()
    loss.add(0.5, None)
    first = loss.reading()
    loss.is_applied = True
    assert len(loss) == 0
    assert loss.reading() == first
    loss.add(0.25, None)
    assert (loss.reading().value, loss.reading().of, len(loss)) == (0.25, "", 1)
    assert first.value == 0.5, "a reading stays what it was"


def test_backwards_before_gradients_were_cleared_do_not_count() -> None:
    loss = StepLoss()
    loss.add(5.0, None)
    loss.forget()
    assert loss.reading().value is None
    loss.add(1.0, None)
    assert (loss.reading().value, loss.reading().of) == (1.0, "")


def test_endless_accumulation_keeps_bounded_losses() -> None:
    loss = StepLoss()
    for _ in range(10_000):
        loss.add(1.0, None)
    assert len(loss) == 4096
    assert loss.reading().value == 1.0


def test_device_loss_is_known_once_parts_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LateCopy, "waiting", [])
    copies = [LateCopy(torch.tensor([value])) for value in (1.0, 2.0)]
    reading = LossReading([copies[0], 3.0, copies[1]], "mean")
    assert not reading.is_there
    copies[0].has_arrived = True
    assert not reading.is_there
    reading.wait()
    assert (reading.is_there, reading.value) == (True, 2.0)


@pytest.mark.parametrize(("scale", "expected"), [(None, 6.0), (4.0, 1.5), (0.0, math.nan)])
def test_device_loss_is_copied_after_its_backward(scale: float | None, expected: float) -> None:
    weight = torch.tensor(3.0, requires_grad=True)
    loss = weight * 2
    copy = DeviceLoss(loss, None if scale is None else torch.tensor(scale))
    assert not copy.is_there
    copy.backward_ended()
    loss.detach().zero_()
    assert (copy.is_there, copy.value) == (True, pytest.approx(expected, nan_ok=True))


# Through a training. In each loop the probe sees the same number of steps, some of them only buffered.

Step = Callable[[nn.Module, torch.optim.Optimizer, int], list[Tensor]]
"""Makes one step; returns the losses that backward was called on."""
STEPS = 12


def losses_at(model: nn.Module, step: int, count: int) -> list[Tensor]:
    return [model(part + step).square().mean() for part in X.split(12 // count)]


def one_backward(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
    losses = losses_at(model, step, 1)
    losses[0].backward()
    optimizer.step()
    return losses


def several(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
    losses = losses_at(model, step, 3)
    for loss in losses:
        loss.backward()
    optimizer.step()
    return losses


def divided(by: Callable[[Tensor], Tensor], count: int = 3) -> Step:
    def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
        # The last step of an epoch of five has fewer batches.
        losses = [by(loss) for loss in losses_at(model, step, count)][: 2 if step % 5 == 4 else count]
        for loss in losses:
            loss.backward()
        optimizer.step()
        return losses

    return step_of


def trained(step_of: Step, *, budget: float, clears_before: bool = True) -> tuple[Watched, list[list[float]]]:
    """A training of some steps, and the losses of each."""
    torch.manual_seed(0)
    model, found = nn.Linear(4, 2), []
    with watched(budget=budget) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(STEPS):
            if clears_before:
                optimizer.zero_grad()
            found.append([loss.item() for loss in step_of(model, optimizer, step)])
            if not clears_before:
                optimizer.zero_grad()
    return seen, found


def by_targets(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
    """Each loss is the sum over its targets, divided by those of all batches of the step."""
    batches = [(part + step, torch.arange(4) % 2) for part in X.split(4)]
    for at, (_, targets) in enumerate(batches):
        targets[: at + step % 2] = -100
    count = sum(int((targets >= 0).sum()) for _, targets in batches)
    losses = [cross_entropy(model(x), targets, reduction="sum") / count / 1 for x, targets in batches]
    for loss in losses:
        loss.backward()
    optimizer.step()
    return losses


LOOPS: dict[str, tuple[Step, str]] = {
    "one backward": (one_backward, ""),
    "several": (several, "mean"),
    "/ the targets of all": (by_targets, "sum"),
    "/ n": (divided(lambda loss: loss / 3), "sum"),
    "* (1 / n)": (divided(lambda loss: loss * (1 / 3)), "sum"),
    "(1 / n) *": (divided(lambda loss: (1 / 3) * loss), "sum"),
    "/ a tensor": (divided(lambda loss: loss / torch.tensor(3.0)), "sum"),
    "/ another number": (divided(lambda loss: loss / 7), "mean"),
    "/ n, of another n": (divided(lambda loss: loss / 6, count=6), "sum"),
}


@pytest.mark.parametrize(("name", "way"), combinations(LOOPS, product([True, False], [100.0, 0.0])))
def test_every_step_says_how_losses_combine(name: str, way: tuple[bool, float]) -> None:
    """The way is whether gradients are cleared before the backward, and a budget that samples each step or only buffers it."""
    clears_before, budget = way
    step_of, of = LOOPS[name]
    seen, found = trained(step_of, budget=budget, clears_before=clears_before)
    figures = [each for each in seen.figures() if each.loss is not None]
    assert [each.step for each in figures] == [*range(1, STEPS + 1)]
    assert {each.loss_of for each in figures} == {of}
    expected = [math.fsum(losses) / (1 if of == "sum" else len(losses)) for losses in found]
    assert [each.loss for each in figures] == pytest.approx(expected, rel=1e-6)
    assert seen.state.loss.values == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["sampled", "buffered"])
def test_cleared_backward_is_no_part_of_step(budget: float) -> None:
    """A script may skip a batch so."""

    def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> list[Tensor]:
        skipped, loss = losses_at(model, step, 2)
        skipped.backward()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss]

    seen, found = trained(step_of, budget=budget)
    assert [loss for _, loss in seen.losses()] == pytest.approx([losses[0] for losses in found], rel=1e-6)
    assert {each.loss_of for each in seen.figures()} == {""}


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["sampled", "buffered"])
@pytest.mark.parametrize("cleared", ["another module", "a part"])
def test_step_without_clearing_all_has_loss(cleared: str, budget: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    other = model[0] if cleared == "a part" else nn.Linear(2, 2)
    expected = []
    with watched(budget=budget) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(X + step).square().mean()
            expected.append(loss.item())
            loss.backward()
            other.zero_grad()
            optimizer.step()
    assert [loss for _, loss in seen.losses()] == pytest.approx(expected, rel=1e-6)


def test_gradients_of_other_optimizer_are_not_counted() -> None:
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    unknown = torch.optim.SGD(other.parameters(), lr=0.01)
    with watched(budget=0.0) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(STEPS):
            optimizer.zero_grad()
            model(X + step).square().mean().backward()
            unknown.zero_grad()
            optimizer.step()
    assert [step for step, _ in seen.losses()] == [*range(1, STEPS + 1)]


def test_two_optimizers_after_one_backward_have_its_loss() -> None:
    first, last = nn.Linear(4, 8), nn.Linear(8, 2)
    expected = []
    with watched() as seen:
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (first, last)]
        for step in range(4):
            loss = last(first(X + step)).square().mean()
            expected += [loss.item()] * 2
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
    assert [loss for _, loss in seen.losses()] == pytest.approx(expected, rel=1e-6)
    assert [each.optimizer for each in seen.figures()] == [0, 1] * 4


def test_clearing_by_other_optimizer_leaves_gan_loss() -> None:
    """Some scripts clear those of the discriminator between the generator's backward and its step."""
    generator, discriminator = nn.Linear(4, 4), nn.Linear(4, 1)
    expected = []
    with watched() as seen:
        optimizer_d, optimizer_g = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (discriminator, generator))
        for step in range(4):
            loss = -discriminator(generator(X + step)).mean()
            expected.append(loss.item())
            loss.backward()
            optimizer_d.zero_grad()
            optimizer_g.step()
            optimizer_g.zero_grad()
    assert [loss for _, loss in seen.losses()] == pytest.approx(expected, rel=1e-6)
