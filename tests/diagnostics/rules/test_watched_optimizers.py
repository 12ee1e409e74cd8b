"""GT215, GT216 and GT217 under the probe: optimizers that are made anew, their loaded state, and schedules that miss them."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from helpers.matches_after import matches_after
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler

from gradtui.run.state.findings import Level

STEPS = 12
State = dict[str, Any]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        inputs = torch.randn(5, 4)
        optimizer.zero_grad()
        (model(inputs) - inputs.roll(1, 1)).square().mean().backward()
        optimizer.step()


def remade(make: Callable[[Iterable[Tensor]], torch.optim.Optimizer], steps: int = 1) -> Callable[[], None]:
    def run() -> None:
        model = net()
        for _ in range(STEPS):
            train(model, make(model.parameters()), steps)

    return run


@pytest.mark.parametrize(
    ("make", "level"),
    [
        (torch.optim.Adam, None),
        (lambda each: torch.optim.SGD(each, 0.01, momentum=0.9), None),
        (lambda each: torch.optim.SGD(each, 0.01), Level.NOTE),
    ],
)
def test_an_optimizer_for_each_step(
    make: Callable[[Iterable[Tensor]], torch.optim.Optimizer], level: Level | None
) -> None:
    (found,) = matches_after("GT215", remade(make))
    # Each optimizer is gone when the run ends: the number is that of the newest report.
    assert 5 <= int(found.evidence["remade"] or 0) < STEPS
    assert found.level is level


def test_an_optimizer_for_each_phase() -> None:
    assert matches_after("GT215", remade(torch.optim.Adam, steps=4)) == []


def test_optimizer_with_state_of_former_one() -> None:
    def run() -> None:
        model = net()
        former = torch.optim.Adam(model.parameters())
        for _ in range(STEPS):
            train(model, former)
            optimizer = torch.optim.Adam(model.parameters())
            optimizer.load_state_dict(former.state_dict())
            former = optimizer

    assert matches_after("GT215", run) == []
    assert matches_after("GT216", run) == []


def test_optimizer_for_each_start_from_same_weights() -> None:
    def run() -> None:
        model = net()
        first = copy.deepcopy(model.state_dict())
        for _ in range(STEPS):
            model.load_state_dict(first)
            train(model, torch.optim.Adam(model.parameters()))

    assert matches_after("GT215", run) == []


def from_a_file(state: State) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def resumed(carry: Callable[[State], State], *, flips: bool, is_new: bool) -> Callable[[], None]:
    def run() -> None:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer, 3)
        state = carry(optimizer.state_dict())
        model = net() if is_new else model
        layers = (model[2], model[0]) if flips else (model[0], model[2])
        optimizer = torch.optim.Adam([each for layer in layers for each in layer.parameters()])
        optimizer.load_state_dict(state)
        train(model, optimizer, 3)

    return run


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("carry", [lambda state: state, copy.deepcopy, from_a_file])
def test_state_of_other_parameters(carry: Callable[[State], State], is_new: bool) -> None:
    (found,) = matches_after("GT216", resumed(carry, flips=True, is_new=is_new))
    assert (found.evidence["tensors"], found.evidence["moved"], found.evidence["unfit"]) == (4, 4, 0)
    assert "2.weight has that of 0.weight" in found.message
    assert matches_after("GT216", resumed(carry, flips=False, is_new=is_new)) == []


def test_state_of_another_shape() -> None:
    def run() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        optimizer = torch.optim.Adam([*model.parameters()][::-1])
        weight = torch.ones(4, 4)
        entry = {"step": torch.tensor(1.0), "exp_avg": weight, "exp_avg_sq": weight}
        state = optimizer.state_dict()
        state["state"] = {1: entry}
        optimizer.load_state_dict(copy.deepcopy(state))
        optimizer.state.clear()
        train(model, optimizer)

    (found,) = matches_after("GT216", run)
    assert found.evidence["unfit"] == 1


class FirstGroups(LRScheduler):
    """Changes the groups that there were when it was made."""

    def get_lr(self) -> list[float | Tensor]:
        return [rate * 0.9**self.last_epoch for rate in self.base_lrs]

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch += 1
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        self._last_lr = rates


def scheduled(
    make: Callable[[torch.optim.Optimizer], LRScheduler], *, replaces: bool, adds: bool
) -> Callable[[], None]:
    def run() -> None:
        model = net()
        optimizer = torch.optim.SGD(model[2].parameters(), 0.01)
        scheduler = make(optimizer)
        if adds:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.5})
        for step in range(200):
            if replaces and step == 20:
                optimizer = torch.optim.SGD(model.parameters(), 0.01)
            train(model, optimizer)
            scheduler.step()

    return run


def test_a_schedule_of_the_former_optimizer() -> None:
    found = matches_after("GT217", scheduled(lambda each: ExponentialLR(each, 0.9), replaces=True, adds=False))
    assert [(each.evidence["groups"], each.evidence["learning_rate"]) for each in found] == [(0, 0.01)]


def test_a_group_that_was_added_later() -> None:
    (found,) = matches_after("GT217", scheduled(FirstGroups, replaces=False, adds=True))
    assert (found.evidence["groups"], found.evidence["learning_rate"]) == (1, 0.5)


def test_schedules_that_reach_everything() -> None:
    for make in (lambda each: ExponentialLR(each, 0.9), lambda each: LambdaLR(each, lambda _: 1.0)):
        assert matches_after("GT217", scheduled(make, replaces=False, adds=False)) == []
    assert matches_after("GT217", scheduled(lambda each: ExponentialLR(each, 0.9), replaces=False, adds=True)) == []
