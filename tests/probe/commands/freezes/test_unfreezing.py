"""Unfreezing: an optimizer is found for what it did not own, and its schedules go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.toggling import X, bits, freeze, small, step, unfreeze
from helpers.watched import watched
from torch.optim import lr_scheduler

from gradtui.protocol.events import CommandApplied, OptimizersFound


def test_early_frozen_parameter_joins_nearest_group() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[4].parameters(), "lr": 0.1}]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        step(model, optimizer)
        before = bits(model)
        seen.submit(unfreeze("2"))
        step(model, optimizer)
        step(model, optimizer)
    assert [path for path, _, _ in seen.all(CommandApplied)[0].changed[0].joined] == ["2.weight", "2.bias"]
    assert len(optimizer.param_groups) == 2
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6
    assert bits(model)["2.weight"] != before["2.weight"]
    assert seen.letters()["2.weight"] == "T"
    assert sorted(seen.all(OptimizersFound)[-1].optimizers[0].parameters) == list(range(6))


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], object]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, [lambda s: 0.9**s] * len(o.param_groups)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda s: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lr_scheduler.ConstantLR,
    "LinearLR": lr_scheduler.LinearLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=[0.05] * len(o.param_groups)),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2), lr_scheduler.LinearLR(o)]),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules_continue_as_if_nothing_was_unfrozen(name: str) -> None:
    def rates(*, toggles: bool) -> list[list[float]]:
        model = small()
        model[2].requires_grad_(False)
        seen_rates = []
        with watched() as seen:
            groups = [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[4].parameters(), "lr": 0.1}]
            optimizer = torch.optim.SGD(groups, momentum=0.9)
            scheduler = SCHEDULERS[name](optimizer)
            for number in range(8):
                if toggles and number in (2, 5):
                    seen.submit(unfreeze("2") if number == 2 else freeze("0"))
                step(model, optimizer)
                scheduler.step()  # type: ignore[attr-defined]
                seen_rates.append([float(group["lr"]) for group in optimizer.param_groups])
        assert len(seen.all(CommandApplied)) == (2 if toggles else 0)
        return seen_rates

    assert rates(toggles=True) == rates(toggles=False)


def test_optimizer_in_use_is_joined_not_former_one() -> None:
    """A two-stage script that keeps its first optimizer: what is unfrozen must move in the second stage."""
    model = small()
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched() as seen:
        for _ in range(3):
            step(model, first)
        model[:4].requires_grad_(False)
        second = torch.optim.Adam(model[4].parameters(), lr=0.01)
        for _ in range(30):
            step(model, second)
        before = bits(model)
        seen.submit(unfreeze("2"))
        step(model, second)
    assert "joined Adam" in seen.answers()[0]
    assert bits(model)["2.weight"] != before["2.weight"]


def test_unfrozen_parameter_without_optimizer_is_orphaned() -> None:
    model = small()
    model[2].requires_grad_(False)
    with watched() as seen:
        seen.submit(unfreeze("2"))
        model(X).square().mean().backward()
    assert "belong to no optimizer" in seen.answers()[0]
    assert model[2].weight.requires_grad
