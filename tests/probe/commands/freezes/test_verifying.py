"""A freeze is verified when a person asks, and whatever moved is named with what moved it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.toggling import freeze, small, step
from helpers.watched import Watched, watched
from torch import nn

from gradtui.protocol.commands import VerifyFreeze
from gradtui.protocol.events import FreezeOverridden, FreezeVerified
from gradtui.run.text import refusals


class Averaging(torch.optim.SGD):
    """An optimizer that writes all its parameters, whether they have a gradient or not."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.999)


def frozen_run(
    disturb: Callable[[nn.Module], object],
    *,
    asked_at: int = 8,
    kind: type[torch.optim.Optimizer] = torch.optim.SGD,
    budget: float = 100.0,
    steps: int = 16,
    disturbed_at: int = 5,
) -> Watched:
    model = small()
    with watched(budget=budget) as seen:
        optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
        for number in seen.steps(steps, {2: freeze("2"), asked_at: VerifyFreeze}):
            step(model, optimizer)
            if number == disturbed_at:
                disturb(model)
    return seen


def halve(model: nn.Module) -> None:
    with torch.no_grad():
        model[2].bias.mul_(0.5)


def halve_past_the_counter(model: nn.Module) -> None:
    model[2].bias.data.mul_(0.5)


def roll_past_the_counter(model: nn.Module) -> None:
    model[2].bias.data.copy_(model[2].bias.data.roll(2))


def test_held_tensors_hold_by_both_means() -> None:
    seen = frozen_run(lambda model: None)
    assert seen.answers()[1].endswith(", by counters and checksums")


@pytest.mark.parametrize(
    ("disturb", "cause"),
    [
        (halve, "written by the script between two steps, as a copy or an average of weights is"),
        (halve_past_the_counter, "written through .data"),
        (roll_past_the_counter, "written through .data"),
    ],
)
def test_what_moved_is_named_with_its_cause(disturb: Callable[[nn.Module], object], cause: str) -> None:
    seen = frozen_run(disturb)
    assert seen.answers()[1] == f"1 of 2 tensors moved: 2.bias ({cause})"
    (verified,) = seen.all(FreezeVerified)
    assert (verified.moved, verified.causes) == (("2.bias",), (cause,))
    assert [entry.kind for entry in seen.state.log].count("moved") == 1


def test_an_optimizer_that_writes_without_gradients_is_named() -> None:
    seen = frozen_run(lambda model: None, kind=Averaging)
    assert "by Averaging" in seen.answers()[1]


@pytest.mark.parametrize("budget", [100.0, 0.0], ids=["every step looked at", "steps only marked"])
def test_late_write_is_told_at_next_step(budget: float) -> None:
    seen = frozen_run(halve, budget=budget, steps=200, disturbed_at=150)
    receipt, late = seen.all(FreezeVerified)
    assert (receipt.moved, receipt.steps) == ((), 10)
    assert late.moved == ("2.bias",)
    assert late.step == 151


class Crowd(nn.Module):
    """A layer that trains, and 1,000 tensors that are frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.many = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(1000))
        self.fc = nn.Linear(4, 1)
        self.lets_loose: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.lets_loose is None:
            return self.fc(x)
        return self.fc(x) * self.many[self.lets_loose].requires_grad_(True)


def crowd(disturb: Callable[[Crowd], object]) -> tuple[Watched, Crowd]:
    """Frozen before step 2 and disturbed after step 100, when steps have been only marked for long; 145 steps."""
    torch.manual_seed(0)
    model = Crowd()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for number in seen.steps(145, {2: freeze("many")}):
            step(model, optimizer)
            if number == 99:
                assert seen.probe.buffer.marks_go_on
                disturb(model)
    return seen, model


@pytest.mark.parametrize("index", [0, 500, 999])
def test_write_among_many_is_told_soon(index: int) -> None:
    def write(model: Crowd) -> None:
        with torch.no_grad():
            model.many[index].mul_(0.5)

    seen, _ = crowd(write)
    receipt, late = seen.all(FreezeVerified)
    assert (receipt.moved, receipt.parameters) == ((), 1000)
    # 1,000 tensors, 64 at each step.
    assert late.moved == (f"many.{index}",)
    assert 100 <= late.step <= 100 + 16
    assert late.causes == ("written within the last 16 steps",)


@pytest.mark.parametrize("index", [0, 500, 999])
def test_retrained_one_of_many_does_not_move(index: int) -> None:
    def let_loose(model: Crowd) -> None:
        model.lets_loose = index

    seen, model = crowd(let_loose)
    assert model.many[index].item() == 1.0
    assert [event.moved for event in seen.all(FreezeVerified)] == [()]
    assert seen.all(FreezeOverridden)[0].step <= 101
    assert seen.all(FreezeOverridden)[0].paths == (f"many.{index}",)


def test_nothing_frozen_needs_no_verification() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(VerifyFreeze)
        step(model, optimizer)
    assert seen.answers() == [refusals.NOTHING_FROZEN]
