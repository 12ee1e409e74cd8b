"""The hold before the step that would apply NaN or Inf, and steps that are skipped: against loops that skip by themselves."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers.examples import combinations
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler

from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.protocol.commands import (
    Command,
    PauseAtBadStep,
    Resume,
    RunSteps,
    SetGroup,
    SetTrainable,
    SkipStep,
    StopTraining,
)
from gradtui.protocol.events import CommandApplied, CommandRejected, NonFiniteFound, PauseChanged
from gradtui.protocol.schedule import Scheduled
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import refusals
from gradtui.transport.in_process import CommandQueue

BAD = 2
"""The number of the batch whose loss is NaN: the third step."""
STEPS = 6
X = torch.linspace(-1, 1, 24).view(6, 4)

OPTIMIZERS = [
    kind
    for _, kind in inspect.getmembers(torch.optim, inspect.isclass)
    if issubclass(kind, Optimizer) and kind not in (Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
]


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


Outcome = tuple[list[list[float]], Any, Any, list[float]]


def train(
    make: Callable[[nn.Module], Optimizer],
    *,
    skips: bool = False,
    scheduler: Callable[[Optimizer], Any] | None = None,
    bad: int = BAD,
    value: float = math.nan,
    each: Callable[[int], object] = lambda number: None,
    rate_at_bad: float | None = None,
) -> Outcome:
    """Weights, optimizer state, scheduler state and learning rates. With `skips` the loop itself leaves out the bad step."""
    model = model_of()
    optimizer = make(model)
    schedule = scheduler(optimizer) if scheduler is not None else None
    rates = []
    for number in range(STEPS):
        each(number)
        optimizer.zero_grad()
        (model(X + number).square().mean() * (value if number == bad else 1.0)).backward()
        if number == bad and rate_at_bad is not None:
            optimizer.param_groups[0]["lr"] = rate_at_bad
        if not (skips and number == bad):
            optimizer.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
        if schedule is not None:
            schedule.step()
    state = {
        index: {name: each.tolist() if isinstance(each, Tensor) else each for name, each in of.items()}
        for index, of in enumerate(optimizer.state.values())
    }
    weights = [parameter.detach().view(torch.int32).tolist() for parameter in model.parameters()]
    return weights, state, schedule.state_dict() if schedule is not None else None, rates


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def held(
    answers: Sequence[Callable[[int], Command]], run: Callable[[], Any], *, schedule: Sequence[Scheduled] = ()
) -> tuple[Any, Watched]:
    """The outcome of `run` where each of `answers` is given while the run is held."""
    commands = ScriptedCommands([lambda queue: [queue.submit(each) for each in answers]])
    with watched(commands=commands) as seen:
        if schedule:
            seen.probe.dispatcher.schedule = ReplayedSchedule(tuple(schedule))
        else:
            seen.submit(PauseAtBadStep)
        outcome = run()
    return outcome, seen


def pauses(seen: Watched) -> list[tuple[bool, int, str | None]]:
    return [
        (event.paused, event.step, event.held_step.name if event.held_step is not None else None)
        for event in seen.all(PauseChanged)
    ]


@pytest.mark.parametrize(("kind", "value"), combinations(OPTIMIZERS, [math.nan, math.inf]))
def test_skipped_step_equals_loop_that_skips(kind: type[Optimizer], value: float) -> None:
    make = lambda model: kind(model.parameters(), lr=0.05)  # noqa: E731
    expected = train(make, skips=True, value=value)
    outcome, seen = held([SkipStep, Resume], lambda: train(make, value=value))
    assert outcome == expected
    assert pauses(seen) == [(True, BAD, kind.__name__), (False, BAD, None)]
    assert (seen.state.step, seen.state.skipped_steps, seen.state.micro_steps) == (STEPS - 1, 1, STEPS)


def test_in_the_first_step() -> None:
    expected = train(adam, skips=True, bad=0)
    outcome, seen = held([SkipStep, Resume], lambda: train(adam, bad=0))
    assert outcome == expected
    assert seen.state.bad_step is not None


def test_continuing_is_the_plain_run() -> None:
    expected = train(sgd)
    outcome, seen = held([Resume], lambda: train(sgd))
    # NaN weights: their bits are compared.
    assert outcome[0] == expected[0]
    assert (seen.state.step, seen.state.skipped_steps) == (STEPS, 0)


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda optimizer: lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 5),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS + 1),
    ],
    ids=["step", "cosine", "one cycle"],
)
@pytest.mark.parametrize("bad", [0, BAD])
def test_schedulers_count_on_without_a_warning(scheduler: Callable[[Optimizer], Any], bad: int) -> None:
    """Warnings are errors here. A loop that does not call the first `step` at all would get one."""
    plain = train(adam, scheduler=scheduler, bad=-1)
    outcome, _ = held([SkipStep, Resume], lambda: train(adam, scheduler=scheduler, bad=bad))
    assert outcome[2:] == plain[2:]
    if bad:
        assert outcome == train(adam, skips=True, scheduler=scheduler)


def test_skipping_with_a_tenth_of_the_rate() -> None:
    expected = train(sgd, skips=True, rate_at_bad=0.01)
    outcome, _ = held([lambda id_: SetGroup(id_, 0, 0, 0.01), SkipStep, Resume], lambda: train(sgd))
    assert outcome == expected


def test_script_finds_its_gradients_as_it_left_them() -> None:
    seen_gradients: list[list[Tensor | None]] = []
    model = model_of()
    optimizer = sgd(model)
    with watched(commands=ScriptedCommands([lambda queue: (queue.submit(SkipStep), queue.submit(Resume))])) as seen:
        seen.submit(PauseAtBadStep)
        for number in range(3):
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == 1 else 1.0)).backward()
            before = [parameter.grad for parameter in model.parameters()]
            optimizer.step()
            seen_gradients.append([a if a is b else None for a, b in zip(before, [p.grad for p in model.parameters()])])
    assert all(gradient is not None for gradients in seen_gradients for gradient in gradients)
    assert not seen.probe.dispatcher.optimizer_steps.hidden


def test_gradients_of_skipped_step_count_as_gradients() -> None:
    _, seen = held([SkipStep, Resume], lambda: train(sgd, value=math.nan))
    # 4 x 4 and 4 x 2 weights of four bytes, in each step: those of the skipped step are there as well.
    measured = [each.held.gradients for each in seen.ledgers(Phase.OPTIMIZER)]
    assert measured == [96] * STEPS


def test_one_skip_ends_pause_after_one_step() -> None:
    def always_bad() -> Outcome:
        return train(adam, value=math.nan, bad=BAD)

    _, seen = held([SkipStep, SkipStep, Resume], always_bad)
    assert seen.refusals() == ["that is already the case"]
    assert seen.state.skipped_steps == 1
    assert not seen.probe.dispatcher.optimizer_steps.is_on
    assert not seen.state.pauses_at_bad_step


def test_why_it_is_held_and_where() -> None:
    _, seen = held([SkipStep, Resume], lambda: train(sgd))
    event = next(each for each in seen.all(PauseChanged) if each.paused)
    assert event.reason.startswith("first NaN: forward of step 3")
    assert event.held_step.optimizer == 0
    assert event.held_step.no_skip == ""
    found = seen.events.index(seen.all(NonFiniteFound)[0])
    assert found < seen.events.index(event), "the cause is known first"
    assert any(entry.text.startswith("paused before the step of SGD") for entry in seen.state.log)


def test_after_caught_interrupt_it_is_held_at_boundary() -> None:
    def interrupt(_: CommandQueue) -> None:
        raise KeyboardInterrupt

    model = model_of()
    optimizer = sgd(model)
    commands = ScriptedCommands([interrupt, lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(PauseAtBadStep)
        for number in range(STEPS):
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == BAD else 1.0)).backward()
            with contextlib.suppress(KeyboardInterrupt):
                optimizer.step()
    # The interrupted step is not executed, and the next one ends before the next boundary.
    before = (True, BAD, "SGD")
    assert pauses(seen) == [before, (False, BAD, None), (True, BAD + 1, None), (False, BAD + 1, None)]


def test_one_more_step_holds_after_it() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunSteps(id_, 1)), lambda queue: queue.submit(Resume)]
    )
    with watched(commands=commands) as seen:
        seen.submit(PauseAtBadStep)
        train(sgd)
    assert pauses(seen) == [(True, 2, "SGD"), (False, 2, None), (True, 3, None), (False, 3, None)]


def test_a_freeze_waits_for_the_boundary() -> None:
    _, seen = held([lambda id_: SetTrainable(id_, "0", False), SkipStep, Resume], lambda: train(sgd))
    applied = [(type(event.command), event.step) for event in seen.all(CommandApplied)]
    assert applied[1:] == [(SkipStep, 2), (Resume, 2), (SetTrainable, 2)]
    steps = [type(event) for event in seen.events if isinstance(event, (PauseChanged, CommandApplied))]
    assert steps.index(PauseChanged) < len(steps) - 1
    assert isinstance([e for e in seen.events if isinstance(e, (PauseChanged, CommandApplied))][-1], CommandApplied)


def test_stopping_there_leaves_the_weights_as_they_were() -> None:
    model = model_of()
    optimizer = sgd(model)
    before: list[Tensor] = []

    def run() -> None:
        for number in range(STEPS):
            before[:] = [parameter.detach().clone() for parameter in model.parameters()]
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == BAD else 1.0)).backward()
            optimizer.step()

    with pytest.raises(SystemExit):
        held([StopTraining], run)
    assert all(a.equal(b) for a, b in zip(before, model.parameters()))


# Where it cannot be held before the step, it is held after it, as it says


class Own(torch.optim.SGD):
    """An optimizer of the script."""


def with_closure(model: nn.Module, number: int, optimizer: Optimizer) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(X).square().mean() * (math.nan if number == BAD else 1.0)
        loss.backward()
        return loss

    optimizer.step(closure)


def test_a_closure_is_held_after_the_step() -> None:
    model = model_of()
    optimizer = sgd(model)
    with watched(commands=ScriptedCommands([lambda queue: (queue.submit(SkipStep), queue.submit(Resume))])) as seen:
        seen.submit(PauseAtBadStep)
        for number in range(4):
            with_closure(model, number, optimizer)
    assert pauses(seen)[0][0] is True
    assert pauses(seen)[0][2] is None
    assert seen.all(PauseChanged)[0].step == 3
    assert seen.state.skipped_steps == 0
    reasons = seen.refusals()
    assert reasons == [refusals.STEP_HAS_CLOSURE]


def test_a_grad_scaler_skips_by_itself() -> None:
    model = model_of()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0)
    with watched(commands=ScriptedCommands([lambda queue: queue.submit(Resume)])) as seen:
        seen.submit(PauseAtBadStep)
        for number in range(5):
            optimizer.zero_grad()
            loss = model(X).square().mean() * (math.nan if number == BAD else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [change[2] for change in pauses(seen)] == [None, None]
    assert seen.state.skipped_steps == 1


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda m: Own(m.parameters(), lr=0.1), "Own is no optimizer of torch.optim"),
        (lambda m: torch.optim.Adam(m.parameters(), lr=0.1, fused=True), "its step is fused"),
    ],
    ids=["own", "fused"],
)
def test_unskippable_step_is_held_with_reason(make: Callable[[nn.Module], Optimizer], why: str) -> None:
    def run() -> None:
        model = model_of()
        optimizer = make(model)
        for number in range(4):
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == BAD else 1.0)).backward()
            optimizer.step()

    _, seen = held([SkipStep, Resume], run)
    first = next(event for event in seen.all(PauseChanged) if event.paused)
    assert first.held_step.no_skip.startswith(why)
    assert [event.reason.startswith(why) for event in seen.all(CommandRejected)] == [True]
    assert seen.state.skipped_steps == 0


def test_hooks_of_the_script_find_its_gradients() -> None:
    def run() -> None:
        model = model_of()
        optimizer = sgd(model)
        optimizer.register_step_pre_hook(
            lambda opt, *_: [p.grad.clamp_(-1, 1) for p in opt.param_groups[0]["params"]] and None
        )
        for number in range(4):
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == BAD else 1.0)).backward()
            optimizer.step()

    _, seen = held([SkipStep, Resume], run)
    assert seen.refusals() == [refusals.STEP_HAS_HOOKS]


def test_second_optimizer_of_iteration_is_held_after_it() -> None:
    def run() -> None:
        first, second = model_of(), model_of()
        optimizers = [sgd(first), sgd(second)]
        for number in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = first(X).square().mean() + second(X).square().mean() * (math.nan if number == BAD else 1.0)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()

    _, seen = held([Resume], run)
    event = next(each for each in seen.all(PauseChanged) if each.paused)
    assert (event.step, event.held_step) == (6, None)
    assert event.reason.endswith(refusals.STEP_FOLLOWS_ANOTHER)


# In a schedule


def test_skip_is_in_schedule_and_is_replayed() -> None:
    expected = train(adam, skips=True)
    _, seen = held([SkipStep, Resume], lambda: train(adam))
    applied = [event for event in seen.all(CommandApplied) if isinstance(event.command, SkipStep)]
    assert [(event.step, event.skipped) for event in applied] == [(BAD, 0)]
    outcome, again = held([], lambda: train(adam), schedule=[Scheduled(BAD, SkipStep(-1))])
    assert outcome == expected
    assert again.state.skipped_steps == 1


def test_asked_for_while_running_it_skips_next_step() -> None:
    def run() -> Outcome:
        return train(adam, value=1.0, each=lambda number: seen.submit(SkipStep) if number == BAD else None)

    expected = train(adam, value=1.0, skips=True)
    with watched() as seen:
        outcome = run()
    assert outcome == expected


def test_refused_skip_is_answered_when_step_comes() -> None:
    model = model_of()
    optimizer = sgd(model)
    with watched() as seen:
        seen.submit(SkipStep)
        with_closure(model, 0, optimizer)
        (answer,) = [event for event in seen.events if isinstance(event, (CommandApplied, CommandRejected))]
    assert isinstance(answer, CommandRejected)
    assert answer.reason == refusals.STEP_HAS_CLOSURE


def test_script_without_optimizer_has_no_step_to_skip() -> None:
    model = model_of()
    with watched() as seen:
        for _ in seen.steps(3, {1: SkipStep}):
            model.zero_grad()
            model(X).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
    assert seen.refusals() == [refusals.NO_OPTIMIZER_STEP]


def test_schedule_that_cannot_be_followed_stops_run() -> None:
    with pytest.raises(SystemExit):
        held([], lambda: train(lambda model: Own(model.parameters(), lr=0.1)), schedule=[Scheduled(BAD, SkipStep(-1))])


def test_step_that_raises_brings_no_old_gradient_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Tensor]:
        model = model_of()
        optimizer = sgd(model)
        for number in range(4):
            optimizer.zero_grad()
            (model(X).square().mean() * (math.nan if number == BAD else 1.0)).backward()
            if number != BAD:
                optimizer.step()
                continue
            with monkeypatch.context() as patch:
                patch.setattr(optimizer, "_init_group", None)
                with pytest.raises(TypeError):
                    optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    weights, seen = held([SkipStep, Resume], run)
    assert all(weight.isfinite().all() for weight in weights)
    assert not seen.probe.dispatcher.optimizer_steps.hidden
