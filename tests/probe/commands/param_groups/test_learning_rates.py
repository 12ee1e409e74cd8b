"""A learning rate for some parameters of a group, against scripts that have made two groups from the start."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from helpers.training import bits, square_step, square_steps
from helpers.watched import Watched, watched
from torch import nn
from torch.optim import lr_scheduler as schedulers

from gradtui.protocol.commands import Command, SetGroup, SetLearningRate, SetTrainable, SkipStep, Undo
from gradtui.protocol.events import CommandApplied, CommandRejected, GroupsRead, OptimizersFound, ProbeFailed
from gradtui.run.text import refusals

X = torch.linspace(-1, 1, 24).view(6, 4)
Asked = Mapping[int, list[Callable[[int], Command]]]
Groups = Iterable[dict[str, Any]]
MakeOptimizer = Callable[[Groups], torch.optim.Optimizer]
QUARTER = 0.25
"""A power of two: rates that are scaled by it, before or after a scheduler, are the same numbers."""


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def rate_of(path: str, rate: float) -> Callable[[int], SetLearningRate]:
    return lambda id_: SetLearningRate(id_, path, rate)


def train(
    asked: Asked,
    model: nn.Sequential,
    make: Callable[[], torch.optim.Optimizer],
    after: Callable[[torch.optim.Optimizer], Callable[[], object]] = lambda _: lambda: None,
    steps: int = 8,
) -> Watched:
    """Train; after each step call what `after` has made from the optimizer."""
    with watched() as seen:
        optimizer = make()
        then = after(optimizer)
        for _ in seen.steps(steps, asked):
            square_step(model, optimizer, X)
            then()
    assert not seen.all(ProbeFailed)
    return seen


def answers(seen: Watched) -> list[str]:
    return [event.text for event in seen.all(CommandApplied)] + seen.refusals()


def two_groups(model: nn.Sequential, rate: float) -> Groups:
    """The groups of a script that gives the layer 2 a quarter of the rate, in the order of a divided group."""
    layer = set(model[2].parameters())
    rest = [each for each in model.parameters() if each not in layer]
    return [{"params": rest, "lr": rate}, {"params": list(model[2].parameters()), "lr": rate * QUARTER}]


def one_group(model: nn.Module) -> Groups:
    return [{"params": list(model.parameters())}]


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1),
    "foreach": lambda groups: torch.optim.AdamW(groups, lr=0.1, foreach=True),
    "fused": lambda groups: torch.optim.Adam(groups, lr=0.1, fused=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rate_before_first_step_equals_two_groups(name: str) -> None:
    plain, steered = small(), small()
    train({}, plain, lambda: OPTIMIZERS[name](two_groups(plain, 0.1)))
    seen = train({0: [rate_of("2", 0.1 * QUARTER)]}, steered, lambda: OPTIMIZERS[name](one_group(steered)))
    (answer,) = answers(seen)
    assert re.fullmatch(
        r"2: learning rate 0\.1 → 0\.025: 2 tensors of \w+ group 0, always at 0\.25 times its rate", answer
    )
    assert bits(steered) == bits(plain)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: schedulers.StepLR(o, 2, 0.5),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 20),
    "one cycle": lambda o: schedulers.OneCycleLR(
        o, [group["lr"] for group in o.param_groups], total_steps=20, cycle_momentum=True
    ),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.9**epoch),
    "plateau": lambda o: schedulers.ReduceLROnPlateau(o, factor=0.3, patience=0, threshold=1.0),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.5, 1.0, 3), schedulers.ExponentialLR(o, 0.9)], [3]
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduled_rate_keeps_its_ratio_to_group(name: str) -> None:
    def run(groups: Callable[[nn.Sequential], Groups], asked: Asked) -> tuple[list[list[float]], Watched, list[Any]]:
        model, made = small(), list[Any]()

        def after(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
            made[:] = optimizer, SCHEDULERS[name](optimizer)
            arguments = (1.0,) if name == "plateau" else ()
            return lambda: made[1].step(*arguments)

        seen = train(asked, model, lambda: torch.optim.SGD(groups(model), lr=0.1, momentum=0.9), after)
        return bits(model), seen, made

    plain, _, _ = run(lambda model: two_groups(model, 0.1), {})
    rate = {"one cycle": 0.1 / 25, "sequential": 0.05}.get(name, 0.1)
    steered, seen, (optimizer, scheduler) = run(one_group, {0: [rate_of("2", rate * QUARTER)]})
    assert not seen.all(CommandRejected)
    assert steered == plain
    model = small()
    again = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fresh = SCHEDULERS[name](again)
    again.load_state_dict(optimizer.state_dict())
    fresh.load_state_dict(scheduler.state_dict())
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_script_sees_and_loads_its_own_groups() -> None:
    model = small()
    names = list(model.named_parameters())
    optimizer = torch.optim.Adam(names, lr=0.1) if _takes_names() else torch.optim.Adam(model.parameters(), lr=0.1)
    (group,) = optimizer.param_groups
    members, keys = group["params"], list(group)
    seen = train({2: [rate_of("2", 0.01)]}, model, lambda: optimizer)
    assert optimizer.param_groups == [group]
    assert group["params"] is members
    assert all(own is each for own, each in zip(members, model.parameters()))
    assert list(group) == keys
    again = torch.optim.Adam(small().parameters(), lr=0.1)
    again.load_state_dict(optimizer.state_dict())
    assert [each["step"].item() for each in again.state.values()] == [8.0] * 6
    found = seen.all(OptimizersFound)[-1].optimizers[0]
    assert (found.groups, found.group_of) == (2, (0, 0, 0, 0, 1, 1))
    assert [tree_path(seen, index) for index in found.parameters[-2:]] == ["2.weight", "2.bias"]
    assert [each.learning_rate for each in seen.all(GroupsRead)[-1].optimizers[0]] == [0.1, 0.01]


def _takes_names() -> bool:
    """Whether this version of torch takes named parameters (since 2.6)."""
    try:
        torch.optim.SGD(nn.Linear(1, 1).named_parameters(), lr=0.1)
    except TypeError:
        return False
    return True


def tree_path(seen: Watched, index: int) -> str:
    return seen.state.tree.parameters[index].path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_undo_ends_the_rate_and_nothing_else_remains(name: str) -> None:
    plain, steered = small(), small()

    def between(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
        """Divide the group by hand in the steps 3 to 5."""
        count = iter(range(1, 100))
        group = optimizer.param_groups[0]
        whole = group["params"]
        apart = {**group, "params": whole[2:4], "lr": 0.025}

        def after() -> None:
            step = next(count)
            if step == 2:
                group["params"] = [*whole[:2], *whole[4:]]
                optimizer.param_groups.append(apart)
            if step == 5:
                group["params"] = whole
                optimizer.param_groups.remove(apart)

        return after

    train({}, plain, lambda: OPTIMIZERS[name](one_group(plain)), between)
    optimizer = OPTIMIZERS[name](one_group(steered))
    seen = train({2: [rate_of("2", 0.025)], 5: [Undo]}, steered, lambda: optimizer)
    assert answers(seen)[-1] == "2: the learning rate is what it was"
    assert bits(steered) == bits(plain)
    assert seen.all(OptimizersFound)[-1].optimizers[0].groups == 1
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_state_dict_pre_hooks


def test_completely_named_group_is_set_itself() -> None:
    model = small()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": [*model[2].parameters(), *model[4].parameters()]}], lr=0.1
    )
    asked: Asked = {
        1: [rate_of("0", 0.05)],
        2: [rate_of("2.weight", 0.01)],
        3: [lambda id_: SetGroup(id_, 0, 2, 0.02)],
        4: [rate_of("", 0.05)],
        5: [Undo],
        6: [rate_of("2.weight", 0.1)],
    }
    seen = train(asked, model, lambda: optimizer)
    assert answers(seen) == [
        "SGD group 0: learning rate 0.1 → 0.05",
        "2.weight: learning rate 0.1 → 0.01: 1 tensor of SGD group 1, always at 0.1 times its rate",
        "SGD group 2: learning rate 0.01 → 0.02: 1 tensor of SGD group 1, always at 0.2 times its rate",
        "the model: learning rate 0.02…0.1 → 0.1: 4 tensors of SGD group 1, at its rate; SGD group 1: learning rate 0.1 → 0.05",
        "SGD group 1: learning rate 0.05 → 0.1; the model: the learning rate is what it was",
        "2.weight: learning rate 0.02 → 0.1: 1 tensor of SGD group 1, at its rate",
    ]
    rates = [[each.learning_rate for each in event.optimizers[0]] for event in seen.all(GroupsRead)]
    assert rates == [
        [0.1, 0.1], [0.05, 0.1], [0.05, 0.1, 0.01], [0.05, 0.1, 0.02], [0.05, 0.05], [0.05, 0.1, 0.02], [0.05, 0.1],
    ]  # fmt: skip


def test_raising_step_leaves_groups_of_script() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twin = copy.deepcopy(optimizer.state_dict())
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen.submit(rate_of("2", 0.025))
        for fails in (False, True, False):

            def closure(fails: bool = fails) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(X).square().mean()
                loss.backward()
                if fails:
                    raise KeyError("the batch")
                return loss

            try:
                optimizer.step(closure)
            except KeyError:
                assert optimizer.state_dict()["param_groups"] == twin["param_groups"]
    assert not seen.all(ProbeFailed)
    assert len(optimizer.param_groups) == 1
    by_hand = small()
    other = torch.optim.SGD(two_groups(by_hand, 0.1), lr=0.1)
    square_steps(by_hand, other, X, 2)
    assert bits(model) == bits(by_hand)


class Twice(torch.optim.SGD):
    """A subclass that steps as its parent does."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_subclass_calling_parents_divides_once() -> None:
    plain, steered = small(), small()
    train({}, plain, lambda: torch.optim.SGD(two_groups(plain, 0.1), lr=0.1))
    train({0: [rate_of("2", 0.025)]}, steered, lambda: Twice(steered.parameters(), lr=0.1))
    assert bits(steered) == bits(plain)


def test_step_with_such_rate_can_be_skipped() -> None:
    model, moved = small(), list[bool]()

    def after(_: torch.optim.Optimizer) -> Callable[[], object]:
        before = [bits(model)]

        def then() -> None:
            moved.append(bits(model) != before[-1])
            before.append(bits(model))

        return then

    seen = train(
        {1: [rate_of("2", 0.01)], 3: [SkipStep]}, model, lambda: torch.optim.SGD(model.parameters(), lr=0.1), after, 5
    )
    assert not seen.all(CommandRejected)
    assert moved == [True, True, True, False, True]


class OfItsFirstGroup(torch.optim.SGD):
    """An optimizer that knows of one group."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            parameter -= self.param_groups[0]["lr"] * parameter.grad


def test_optimizer_of_one_group_gets_rates_back() -> None:
    model = small()
    with watched(may_fail=True) as seen:
        optimizer = OfItsFirstGroup(model.parameters(), lr=0.1)
        seen.submit(rate_of("2", 0.01))
        for _ in range(3):
            before = bits(model[2])
            square_step(model, optimizer, X)
            if _ != 0:
                assert bits(model[2]) != before
    (failed,) = seen.all(ProbeFailed)
    assert "a step of OfItsFirstGroup updates only the groups that it was made with" in failed.error
    assert len(optimizer.param_groups) == 1


def test_frozen_parameter_takes_rate_when_training_again() -> None:
    model = small()
    seen = train(
        {
            1: [lambda id_: SetTrainable(id_, "2", False), rate_of("2", 0.0)],
            3: [lambda id_: SetTrainable(id_, "2", True)],
        },
        model,
        lambda: torch.optim.SGD(model.parameters(), lr=0.5),
    )
    assert not seen.all(CommandRejected)
    by_hand = small()
    other = torch.optim.SGD(by_hand.parameters(), lr=0.5)
    square_step(by_hand, other, X)
    assert bits(model[2]) == bits(by_hand[2]), "at the rate 0 it stays"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1), refusals.LBFGS_HAS_ONE_GROUP),
        (lambda model: torch.optim.SGD(model[0].parameters(), lr=0.1), refusals.NO_OPTIMIZER_HAS_IT),
        (lambda model: torch.optim.SGD(model.parameters(), lr=0.0), refusals.group_has_no_rate("SGD group 0")),
        (
            lambda model: torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False),
            refusals.rate_is_read_on_device("Adam group 0"),
        ),
        (
            lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
            refusals.ALREADY_SO,
        ),
    ],
)
def test_it_is_refused_in_one_line(make: Callable[[nn.Sequential], torch.optim.Optimizer], reason: str) -> None:
    model = small()
    optimizer = make(model)
    with watched() as seen:
        for _ in range(2):

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss: torch.Tensor = model(X).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)
            seen.submit(rate_of("2", 0.01))
    assert seen.refusals()[:1] == [reason]
