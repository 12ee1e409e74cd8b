"""Loops that have no optimizer: the script itself changes its parameters by their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from helpers.training import square_steps
from helpers.watched import ScriptedCommands, watched
from torch import nn

from gradtui.probe.runtime.outcome import RunStopped
from gradtui.protocol.commands import Pause, Resume, RunSteps, SetTrainable, StopTraining
from gradtui.protocol.events import CommandApplied, CommandRejected, GradientsMeasured, PauseChanged

X = torch.linspace(-1, 1, 24).view(6, 4)


def model_of_two() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def train(model: nn.Module, steps: int, each: Callable[[int], object] = lambda number: None) -> list[int]:
    """The loop of many tutorials; the numbers of the iterations that ran to their end."""
    done: list[int] = []
    for number in range(steps):
        each(number)
        loss = model(X).square().mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        done.append(number)
    return done


def test_each_backward_is_a_step() -> None:
    with watched() as seen:
        train(model_of_two(), 5)
    assert (seen.state.step, seen.state.micro_steps) == (5, 5)
    assert seen.state.optimizer_steps == []


def test_a_pause_holds_and_a_step_runs() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunSteps(id_, 1)), lambda queue: queue.submit(Resume)]
    )
    with watched(commands=commands) as seen:
        train(model_of_two(), 5, lambda number: seen.submit(Pause) if number == 2 else None)
    assert [(event.paused, event.step) for event in seen.all(PauseChanged)] == [
        (True, 2), (False, 2), (True, 3), (False, 3),
    ]  # fmt: skip


def test_a_stop_ends_the_run_after_its_update() -> None:
    done: list[int] = []
    model = model_of_two()
    with watched() as seen, pytest.raises(RunStopped):
        train(model, 5, lambda number: (done.append(number), seen.submit(StopTraining) if number == 1 else None))
    assert done == [0, 1]


def test_number_of_steps_ends_run_after_their_updates() -> None:
    stopped, whole = model_of_two(), model_of_two()
    with watched(stop_after=3), pytest.raises(RunStopped):
        train(stopped, 5)
    train(whole, 3)
    assert all(torch.equal(a, b) for a, b in zip(stopped.parameters(), whole.parameters()))


def test_letters_and_norms_are_those_of_the_backward() -> None:
    model = model_of_two()
    model[0].requires_grad_(False)
    with watched() as seen:
        train(model, 3)
    assert seen.state.tree.states == "CCTT"
    measured = seen.all(GradientsMeasured)
    assert [event.step for event in measured if event.total is not None] == [1, 2, 3]
    # The gradients of the last backward are still there.
    expected = [None, None, *(parameter.grad.norm().item() for parameter in model[1].parameters())]
    assert seen.state.tree.norms is not None
    assert list(seen.state.tree.norms) == [None if norm is None else pytest.approx(norm, rel=1e-5) for norm in expected]


def test_freeze_is_refused_if_update_is_unprepared() -> None:
    with watched() as seen:
        train(model_of_two(), 3, lambda n: seen.submit(lambda id_: SetTrainable(id_, "0", False)) if n == 1 else None)
    [refusal] = seen.all(CommandRejected)
    assert "updates its parameters itself" in refusal.reason


def test_an_unfreeze_is_applied() -> None:
    model = model_of_two()
    model[0].requires_grad_(False)
    before = model[0].weight.detach().clone()
    with watched() as seen:
        train(model, 3, lambda n: seen.submit(lambda id_: SetTrainable(id_, "0", True)) if n == 1 else None)
    [applied] = seen.all(CommandApplied)
    assert applied.step == 1
    assert not torch.equal(before, model[0].weight)
    assert seen.state.tree.states == "TTTT"


def test_tensors_without_module_have_their_boundary_at_backward() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    weight = torch.zeros(4, 2, requires_grad=True)
    with watched(commands=commands) as seen:
        for _ in seen.steps(4, {2: Pause}):
            (X @ weight - 1).square().mean().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
            weight.grad = None
    assert [(event.paused, event.step) for event in seen.all(PauseChanged)] == [(True, 2), (False, 2)]


def test_two_backwards_of_forward_have_no_boundary() -> None:
    model = model_of_two()
    held: list[int] = []
    with watched() as seen:
        for number in range(3):
            output = model(X)
            output.square().mean().backward(retain_graph=True)
            if number == 1:
                seen.submit(lambda id_: SetTrainable(id_, "0", True))
            held.append(len(seen.all(CommandRejected)))
            output.abs().mean().backward()
            held.append(len(seen.all(CommandRejected)))
    assert held == [0, 0, 0, 0, 1, 1]


def test_backward_before_optimizer_is_no_step() -> None:
    model = model_of_two()
    with watched() as seen:
        model(X).square().mean().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        square_steps(model, optimizer, X, 4)
    assert (seen.state.step, seen.state.micro_steps) == (4, 5)
    assert seen.state.optimizer_steps == [4]


def test_accumulation_before_the_first_step_has_no_boundary() -> None:
    model = model_of_two()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in seen.steps(4, {1: lambda id_: SetTrainable(id_, "0", False)}):
            model(X).square().mean().backward()
            assert not seen.all(CommandApplied)
        optimizer.step()
        model(X).square().mean().backward()
        [applied] = seen.all(CommandApplied)
    assert applied.step == 1


HALF = 0.5


def norm_of_all(model: nn.Module) -> float:
    return math.sqrt(sum(parameter.grad.square().sum().item() for parameter in model.parameters()))


def clip_by_hand(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.mul_(HALF)


def clip_anew(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = parameter.grad * HALF


def to_none(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def to_zero(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.zero_()


def keep(model: nn.Module) -> None:
    pass


def clear_before_the_forward(model: nn.Module) -> None:
    model.zero_grad()


CLIP = {
    "none": lambda model: None,
    "torch": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.25),
    "value": lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.01),
    "by hand": clip_by_hand,
    "anew": clip_anew,
}
CLEAR = {"to none": to_none, "to zero": to_zero, "zero_grad": clear_before_the_forward, "before backward": keep}


@pytest.mark.parametrize("clear", CLEAR)
@pytest.mark.parametrize("clip", CLIP)
def test_the_norm_is_that_of_what_is_applied(clip: str, clear: str) -> None:
    """Or the data say that it may not be."""
    model = model_of_two()
    before: list[float] = []
    applied: list[float] = []
    with watched() as seen:
        for _ in range(5):
            loss = 10 * model(X).square().mean()
            if clear == "before backward":
                model.zero_grad()
            loss.backward()
            before.append(norm_of_all(model))
            CLIP[clip](model)
            applied.append(norm_of_all(model))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
            CLEAR[clear](model)
    events = [event for event in seen.all(GradientsMeasured) if event.total is not None]
    assert [event.step for event in events] == [1, 2, 3, 4, 5]
    assert None not in [event.loss for event in events]
    is_known = clear in ("zero_grad", "before backward") or (clear == "to zero" and clip in ("none", "torch"))
    assert {event.as_applied for event in events} == {is_known}
    is_read = is_known or clip in ("none", "torch")
    assert [event.total for event in events] == pytest.approx(applied if is_read else before, rel=1e-5)
    clipped = [event.before_clipping for event in events]
    assert clipped == ([pytest.approx(total, rel=1e-5) for total in before] if clip == "torch" else [None] * 5)


@pytest.mark.parametrize("clear", [to_none, keep])
def test_parameter_without_gradient_loses_its_norm(clear: Callable[[nn.Module], None]) -> None:
    model = model_of_two()
    with watched() as seen:
        for number in range(4):
            output = model[0](X)
            if number == 3:
                output = output.detach()
            clear_before_the_forward(model)
            model[1](output).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
            if number == 3:
                assert {*seen.probe.norms.latest.by_index} == {2, 3}, "already when backward has ended"
            clear(model)
    assert [path for path, norm in seen.norms().items() if norm is None] == ["0.weight", "0.bias"]


def test_second_reading_leaves_loss_of_next_step(
    set_reading_interval: Callable[[int], None],
) -> None:
    set_reading_interval(3)
    model = model_of_two()
    with watched(budget=1e-9) as seen:
        for _ in range(40):
            model.zero_grad(set_to_none=False)
            model(X).square().mean().backward()
            clip_by_hand(model)
    assert [step for step, _ in seen.losses()] == [*range(1, 41)]


@pytest.mark.parametrize("interval", [1, 3, 1_000])
def test_gradients_of_last_step_are_read_at_end(interval: int, set_reading_interval: Callable[[int], None]) -> None:
    set_reading_interval(interval)
    model = model_of_two()
    with watched(budget=1e-9) as seen:
        train(model, 100)
    assert seen.totals()[-1] == (100, pytest.approx(norm_of_all(model), rel=1e-5))
    # The norms of the parameters come with that total, or at the end of the run: time decides which.
    expected = [pytest.approx(parameter.grad.norm().item(), rel=1e-5) for parameter in model.parameters()]
    assert [*seen.norms().values()] == expected
