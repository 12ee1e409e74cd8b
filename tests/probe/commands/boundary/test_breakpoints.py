"""Breakpoints: which step the run is held after, why, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn

from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    Pause,
    Resume,
    RunSteps,
    RunTo,
    SetBreakpoint,
)
from gradtui.protocol.events import CommandApplied, PauseChanged
from gradtui.run.text import refusals

Make = Callable[[int], Command]
RATE = 0.5


def train(factors: Iterable[float], each: Callable[[int], object] = lambda number: None) -> Tensor:
    """Loss and gradient of a step are its factor: the weight is 1 and never moves."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for number, factor in enumerate(factors):
        each(number)
        optimizer.zero_grad()
        (model(torch.ones(1, 1)).sum() * factor).backward()
        with torch.no_grad():
            optimizer.step()
            model.weight.fill_(1.0)
    return model.weight.detach()


def paused(seen: Watched) -> list[tuple[int, str]]:
    return [(event.step, event.reason) for event in seen.all(PauseChanged) if event.paused]


def at(metric: str, value: float = 0.0, *, above: bool = True) -> Make:
    return lambda number: SetBreakpoint(number, metric, value, above)


def held(*breakpoints: Make, factors: Iterable[float], resumes: int = 1, budget: float = 100.0) -> Watched:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)] * resumes)
    with watched(commands=commands, budget=budget) as seen:
        for make in breakpoints:
            seen.submit(make)
        train(factors)
    return seen


def test_a_step() -> None:
    seen = held(at("step", 3), factors=[1.0] * 6)
    assert paused(seen) == [(3, "step 3")]
    assert seen.state.step == 6


@pytest.mark.parametrize(
    ("make", "factors", "step", "reason"),
    [
        (at("loss", 3.0), [1, 2, 3.25, 1], 3, "loss 3.25 > 3 at step 3"),
        (at("loss", 0.5, above=False), [1, 2, 0.25, 1], 3, "loss 0.25 < 0.5 at step 3"),
        (at("norm", 3.0), [1, -4, 1, 1], 2, "gradient norm 4 > 3 at step 2"),
        (at("loss", 3.0), [1, float("nan"), 5, 1], 3, "loss 5 > 3 at step 3"),
    ],
)
def test_a_metric(make: Make, factors: list[float], step: int, reason: str) -> None:
    seen = held(make, factors=factors)
    assert paused(seen) == [(step, reason)]


def test_each_pauses_once() -> None:
    seen = held(at("loss", 3.0), factors=[4.0] * 5)
    assert paused(seen) == [(1, "loss 4 > 3 at step 1")]
    assert seen.state.breakpoints == {}


def test_two_breakpoints_at_boundary_pause_once() -> None:
    seen = held(at("step", 2), at("loss", 3.0), factors=[1, 4, 1, 1])
    ((step, reason),) = paused(seen)
    assert step == 2
    assert set(reason.split("; ")) == {"step 2", "loss 4 > 3 at step 2"}


def test_learning_rate_is_that_of_next_step() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    with watched(commands=ScriptedCommands([lambda queue: queue.submit(Resume)])) as seen:
        seen.submit(at("lr", 0.05, above=False))
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
    # The rates of steps 1, 2 and 3 are 1, 0.1 and 0.01.
    assert paused(seen) == [(2, "learning rate 0.01 < 0.05 at step 3")]


def test_breakpoint_of_loss_measures_every_step() -> None:
    factors = [1.0] * 300 + [9.0] + [1.0] * 5
    seen = held(at("loss", 3.0), factors=factors, budget=1e-9)
    assert paused(seen) == [(301, "loss 9 > 3 at step 301")]
    assert {step for step, _ in seen.totals()} >= set(range(1, 302))


def test_one_that_is_cleared_pauses_nothing() -> None:
    with watched(commands=ScriptedCommands()) as seen:
        number = seen.submit(at("loss", 3.0)).id
        seen.submit(lambda id_: ClearBreakpoint(id_, number))
        seen.submit(lambda id_: ClearBreakpoint(id_, number))
        train([4.0] * 3)
    assert paused(seen) == []
    assert seen.state.breakpoints == {}
    assert [event.text for event in seen.all(CommandApplied)] == ["pauses at loss > 3", "no longer pauses at loss > 3"]
    assert seen.refusals() == [f"there is no breakpoint {number}"]


def test_what_cannot_be_set_is_refused() -> None:
    with watched(commands=ScriptedCommands()) as seen:
        seen.submit(at("loss", float("nan")))
        train([1.0] * 3, lambda number: seen.submit(at("step", 1)) if number == 2 else None)
        assert list(seen.state.breakpoints) == []
    reasons = seen.refusals()
    assert reasons == ["its value is not a finite number of 32 bits: nan", refusals.step_is_over(1, 2)]


def test_viewer_pauses_at_its_own_and_says_why() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        number = seen.submit(lambda id_: SetBreakpoint(id_, "finding")).id
        pause: Make = lambda id_: Pause(id_, "finding GT203 at step 2", number)  # noqa: E731
        train([1.0] * 4, lambda step: seen.submit(pause) if step == 2 else None)
    assert paused(seen) == [(2, "finding GT203 at step 2")]
    assert seen.state.breakpoints == {}


def test_one_that_was_cleared_meanwhile_does_not_pause() -> None:
    with watched(commands=ScriptedCommands()) as seen:
        train([1.0] * 3, lambda step: seen.submit(lambda id_: Pause(id_, "late", 99)) if step == 1 else None)
    assert paused(seen) == []


def test_nobody_is_left_to_resume_the_run() -> None:
    with watched(commands=ScriptedCommands()) as seen:
        seen.submit(at("step", 3))
        train([1.0] * 6, lambda number: seen.commands.close() if number == 1 else None)
        assert not seen.probe.dispatcher.holds_soon(2)
    assert paused(seen) == []


# Together with requests that run on


def test_last_run_to_wins_and_breakpoint_stays() -> None:
    """`N` after run-to replaces it; the breakpoint between them holds too, once."""
    commands = ScriptedCommands([lambda queue: queue.submit(Resume), lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(at("step", 6))
        seen.submit(lambda number: RunTo(number, 3))
        seen.submit(lambda number: RunSteps(number, 4))
        train([1.0] * 9)
    assert paused(seen) == [(4, ""), (6, "step 6")]


def test_a_breakpoint_ends_what_was_to_run_on() -> None:
    """Run to 8 is over when the breakpoint at 4 holds the run."""
    seen = held(lambda number: RunTo(number, 8), at("step", 4), factors=[1.0] * 10, resumes=1)
    assert paused(seen) == [(4, "step 4")]


def test_single_steps_stop_at_breakpoint_first() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(RunSteps), lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(at("loss", 3.0))
        seen.submit(lambda number: RunSteps(number, 5))
        train([1, 1, 4, 1, 1, 1, 1])
    assert paused(seen) == [(3, "loss 4 > 3 at step 3"), (4, "")]


def test_the_same_bits_with_breakpoints() -> None:
    plain = train([1.0] * 5)
    with watched(commands=ScriptedCommands([lambda queue: queue.submit(Resume)] * 2)) as seen:
        seen.submit(at("loss", 0.5))
        seen.submit(at("norm", 0.5))
        assert train([1.0] * 5).equal(plain)
