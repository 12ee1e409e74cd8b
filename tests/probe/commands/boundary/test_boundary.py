"""Pausing, stepping and stopping: where the training thread is held, and what lets it go."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from time import monotonic

import pytest
import torch
from helpers import loops
from helpers.training import square_steps
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn
from zoo import SPECIMENS

from gradtui.probe.commands.boundary.boundary import Boundary
from gradtui.probe.commands.boundary.breakpoints import Breakpoints
from gradtui.probe.runtime.outcome import CommandRefused, CommandResult, Hold, RunStopped
from gradtui.probe.sampling import ProcessGroupWatch
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, RunTo, SetTrainable, StopTraining
from gradtui.protocol.events import CommandApplied, CommandRejected, PauseChanged, Progress
from gradtui.run.text import refusals
from gradtui.transport.in_process import CommandQueue

X = torch.linspace(-1, 1, 24).view(6, 4)


def train(steps: int, each: Callable[[int], object] = lambda number: None) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    square_steps(model, optimizer, X, steps, each)
    return model


def pauses(seen: Watched) -> list[tuple[bool, int]]:
    return [(event.paused, event.step) for event in seen.all(PauseChanged)]


def submitting_at(step: int, seen: Watched, make: Callable[[int], Command]) -> Callable[[int], object]:
    return lambda number: seen.submit(make) if number == step else None


def test_pause_holds_before_step_and_resume_releases() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        train(4, submitting_at(2, seen, Pause))
    assert commands.waits == 1
    assert pauses(seen) == [(True, 2), (False, 2)]
    assert seen.state.step == 4
    assert not seen.state.paused
    assert seen.state.pending == {}


def test_waiting_for_user_belongs_to_no_phase() -> None:
    waits = 0.2

    def ask(number: int) -> None:
        if number == 4:
            seen.probe.parts.waits_for_user(True)
            threading.Event().wait(waits)
            seen.probe.parts.waits_for_user(False)

    began = monotonic()
    with watched(budget=0.0) as seen:  # most events are buffered
        train(6, ask)
    elapsed = monotonic() - began
    assert 0 < sum(phase.seconds for event in seen.all(Progress) for phase in event.phases) < elapsed - waits
    assert seen.state.step == 6


def test_steps_run_one_by_one_and_by_dozen() -> None:
    commands = ScriptedCommands(
        [
            lambda queue: queue.submit(lambda id_: RunSteps(id_)),
            lambda queue: queue.submit(lambda id_: RunSteps(id_, 3)),
            lambda queue: queue.submit(Resume),
        ]
    )
    with watched(commands=commands) as seen:
        train(10, submitting_at(2, seen, Pause))
    assert pauses(seen) == [(True, 2), (False, 2), (True, 3), (False, 3), (True, 6), (False, 6)]
    assert seen.state.step == 10


def test_steps_asked_for_at_once_add_up() -> None:
    def three_times(queue: ScriptedCommands) -> None:
        for _ in range(3):
            queue.submit(RunSteps)

    commands = ScriptedCommands([three_times, lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        train(8, submitting_at(2, seen, Pause))
    assert pauses(seen) == [(True, 2), (False, 2), (True, 5), (False, 5)]


def test_steps_may_be_asked_for_while_running() -> None:
    commands = ScriptedCommands()
    with watched(commands=commands) as seen:
        train(6, submitting_at(1, seen, lambda id_: RunSteps(id_, 2)))
    assert pauses(seen) == [(True, 3), (False, 3)]


def test_commands_are_carried_out_while_held() -> None:
    commands = ScriptedCommands(
        [
            lambda queue: queue.submit(lambda id_: SetTrainable(id_, "0", False)),
            lambda queue: queue.submit(lambda id_: SetTrainable(id_, "nowhere", False)),
            lambda queue: queue.submit(Resume),
        ]
    )
    with watched(commands=commands) as seen:
        model = train(3, submitting_at(1, seen, Pause))
    assert not model[0].weight.requires_grad
    kinds = [type(event) for event in seen.events if isinstance(event, (CommandApplied, CommandRejected, PauseChanged))]
    assert kinds == [CommandApplied, PauseChanged, CommandApplied, CommandRejected, CommandApplied, PauseChanged]


def test_a_closed_queue_releases_and_never_holds_again() -> None:
    commands = ScriptedCommands()
    with watched(commands=commands) as seen:
        train(5, submitting_at(1, seen, Pause))
    assert commands.waits == 1
    assert pauses(seen) == [(True, 1), (False, 1)]
    assert seen.state.step == 5


def test_a_viewer_in_another_thread_releases_at_once() -> None:
    with watched(commands=CommandQueue()) as seen:
        thread = when_held(seen, lambda: seen.submit(Resume))
        train(3, submitting_at(1, seen, Pause))
        thread.join()
    assert pauses(seen) == [(True, 1), (False, 1)]


def test_time_held_is_neither_training_nor_ours() -> None:
    class Slow(ScriptedCommands):
        def wait(self, seconds: float) -> None:
            seen.probe.clock.now = lambda: real() + 10_000_000_000
            super().wait(seconds)

    commands = Slow([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        real = seen.probe.clock.now
        train(4, submitting_at(2, seen, Pause))
        assert seen.probe._cost.step_time.seconds < 5
    assert sum(record.seconds for record in seen.state.phases.values()) < 5
    assert sum(event.own_seconds for event in seen.all(Progress)) < 5


@pytest.mark.parametrize("limit", [1, 3])
def test_step_limit_ends_script_after_that_step(limit: int) -> None:
    with watched(stop_after=limit) as seen, pytest.raises(RunStopped) as raised:
        train(9)
    assert raised.value.code == 0
    assert (seen.state.step, seen.state.micro_steps) == (limit, limit)


def test_the_step_limit_with_a_closure() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        return loss

    with watched(stop_after=2) as seen:
        optimizer.step(closure)
        with pytest.raises(SystemExit):
            optimizer.step(closure)
    assert seen.state.step == 2


def test_pause_holds_closure_loop_before_its_next_step() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunSteps(id_)), lambda queue: queue.submit(Resume)]
    )
    model = nn.Linear(4, 2)
    inside: list[int] = []
    with watched(commands=commands) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            inside.append(seen.state.step)
            return loss

        for _ in seen.steps(4, {1: Pause}):
            optimizer.step(closure)
    assert pauses(seen) == [(True, 1), (False, 1), (True, 2), (False, 2)]
    assert len(inside) == 4


def test_a_pause_holds_a_loop_without_any_module() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    weight = torch.zeros(4, 2, requires_grad=True)
    with watched(commands=commands) as seen:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in seen.steps(4, {2: Pause}):
            (X @ weight - 1).square().mean().backward()
            optimizer.step()
    assert pauses(seen) == [(True, 2), (False, 2)]


def test_evaluation_is_no_boundary() -> None:
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(3):
            model(X).square().mean().backward()
            optimizer.step()
            if number == 1:
                seen.submit(lambda id_: SetTrainable(id_, "bias", False))
            with torch.no_grad():
                model(X)
            assert seen.all(CommandApplied) == []
            if number == 1:
                break
        model(X)
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_run_goes_on_to_step_and_holds_there() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunTo(id_, 2)), lambda queue: queue.submit(Resume)]
    )
    with watched(commands=commands) as seen:
        train(8, submitting_at(1, seen, lambda id_: RunTo(id_, 5)))
    assert pauses(seen) == [(True, 5), (False, 5)]
    (rejected,) = seen.all(CommandRejected)
    assert rejected.reason == refusals.step_is_over(2, 5)


def test_step_on_way_to_later_one_pauses_there() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])

    def each(number: int) -> None:
        if number in (1, 3):
            seen.submit((lambda id_: RunTo(id_, 1_000)) if number == 1 else RunSteps)

    with watched(commands=commands) as seen:
        train(8, each)
    assert pauses(seen) == [(True, 4), (False, 4)]


# ---- the boundary alone


def boundary(queue: CommandQueue, log: list[object]) -> Boundary:
    def toggle(command: Command) -> CommandResult:
        if not isinstance(command, SetTrainable):
            raise CommandRefused(refusals.UNKNOWN_COMMAND)
        if command.path == "refused":
            raise CommandRefused("no")
        return CommandResult("done", (1,))

    return Boundary(
        queue,
        handle=toggle,
        answered=lambda command, answer: log.append((command.id, answer if isinstance(answer, str) else answer.text)),
        held=log.append,
        breakpoints=Breakpoints(lambda _: None, lambda _: ()),
    )


def test_every_command_is_answered_in_order() -> None:
    queue, log = CommandQueue(), list[object]()
    queue.submit(lambda id_: SetTrainable(id_, "fc", False))
    queue.submit(lambda id_: SetTrainable(id_, "refused", False))
    queue.submit(Command)
    queue.submit(Resume)
    boundary(queue, log).cross(5)
    assert log == [(1, "done"), (2, "no"), (3, refusals.UNKNOWN_COMMAND), (4, "resume")]


def test_a_boundary_with_nothing_to_do_is_idle() -> None:
    queue, log = ScriptedCommands([lambda queue: queue.submit(Resume)]), list[object]()
    crossing = boundary(queue, log)
    assert crossing.is_idle
    queue.submit(Pause)
    assert not crossing.is_idle
    crossing.cross(1)
    assert crossing.is_idle
    assert log == [(1, "pause"), Hold(), (2, "resume"), None]


def test_a_stopped_run_stays_stopped() -> None:
    queue, log = CommandQueue(), list[object]()
    crossing = boundary(queue, log)
    queue.submit(StopTraining)
    for _ in range(2):
        with pytest.raises(SystemExit):
            crossing.cross(1)


def test_later_acts_are_no_second_answer() -> None:
    queue, log = CommandQueue(), list[object]()
    crossing = boundary(queue, log)

    def applied(command: Command, answer: CommandResult | str) -> None:
        log.append(command.id)
        raise ZeroDivisionError

    crossing._answered = applied
    queue.submit(Resume)
    with pytest.raises(ZeroDivisionError):
        crossing.cross(1)
    assert log == [1]


def test_commands_sent_during_others_are_answered() -> None:
    queue, log = CommandQueue(), list[object]()
    crossing = boundary(queue, log)
    more: list[Callable[[int], Command]] = [Pause, Resume, lambda id_: SetTrainable(id_, "fc", True)]

    def applied(command: Command, answer: CommandResult | str) -> None:
        log.append(command.id)
        if more:
            queue.submit(more.pop(0))

    crossing._answered = applied
    queue.submit(lambda id_: SetTrainable(id_, "fc", False))
    crossing.cross(1)
    assert log == [1, 2, 3, 4]


def test_what_comes_after_a_stop_is_still_answered() -> None:
    queue, log = CommandQueue(), list[object]()
    for make in (StopTraining, Pause, lambda id_: SetTrainable(id_, "fc", False)):
        queue.submit(make)
    with pytest.raises(RunStopped):
        boundary(queue, log).cross(3)
    assert log == [(1, "stop"), (2, "pause"), (3, "done")]


# ---- counting steps


@pytest.mark.parametrize("count", [1, 2, 5])
def test_steps_count_optimizer_steps_not_micro_steps(count: int) -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(lambda id_: RunSteps(id_, count)), CommandQueue.close])
    model = nn.Linear(4, 2)
    micro_steps: list[int] = []
    with watched(commands=commands) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen.submit(Pause)
        for number in range(30):
            model(X).square().mean().backward()
            micro_steps.append(len(pauses(seen)))
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert pauses(seen) == [(True, 0), (False, 0), (True, count), (False, count)]
    # Held before the first micro-step, and not again until all of the count's have run.
    assert micro_steps[: 3 * count] == [2] * (3 * count)
    assert micro_steps[3 * count] == 4


def test_skipped_step_is_not_one_asked_for() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunSteps(id_, 2)), lambda queue: queue.submit(Resume)]
    )
    specimen = SPECIMENS["mlp"]()
    with watched(commands=commands) as seen:
        seen.submit(Pause)
        loops.grad_scaler(specimen.model, specimen.batch, specimen.loss, 5)
    assert seen.state.skipped_steps == 1
    assert pauses(seen) == [(True, 0), (False, 0), (True, 2), (False, 2)]
    assert seen.state.step == 4


def test_steps_of_two_optimizers_count_each() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: RunSteps(id_, 3)), lambda queue: queue.submit(Resume)]
    )
    specimen = SPECIMENS["mlp"]()
    with watched(commands=commands) as seen:
        seen.submit(Pause)
        loops.gan(specimen.model, specimen.batch, specimen.loss, 4)
    assert pauses(seen) == [(True, 0), (False, 0), (True, 3), (False, 3)]


# ---- ends


def test_stop_runs_finally_and_passes_handlers() -> None:
    done: list[str] = []

    def script() -> None:
        try:
            try:
                train(9, submitting_at(2, seen, StopTraining))
            except Exception:
                done.append("except")
            finally:
                done.append("finally")
        finally:
            done.append("outer finally")

    with watched() as seen, pytest.raises(SystemExit) as raised:
        script()
    assert done == ["finally", "outer finally"]
    assert raised.value.code == 0
    assert [event.text for event in seen.all(CommandApplied)] == ["stop"]


def test_script_catching_stop_is_stopped_at_next_boundary() -> None:
    with watched() as seen:
        for attempt in range(2):
            with pytest.raises(SystemExit):
                train(5, submitting_at(0, seen, StopTraining) if attempt == 0 else lambda number: None)
    # The step that it began in spite of it is finished first.
    assert seen.state.step == 1


def when_held(seen: Watched, act: Callable[[], object]) -> threading.Thread:
    """Another thread that acts as soon as the training thread is held."""
    held = threading.Event()
    emit = seen.probe.parts.emit

    def noticed(event: object) -> None:
        emit(event)
        if isinstance(event, PauseChanged) and event.paused:
            held.set()

    def wait() -> None:
        assert held.wait(60)
        act()

    seen.probe.parts.emit = noticed
    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_real_ctrl_c_while_held_reaches_script() -> None:
    with watched(commands=CommandQueue()) as seen:
        thread = when_held(seen, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            train(9, submitting_at(1, seen, Pause))
        thread.join()
        assert pauses(seen) == [(True, 1), (False, 1)]
        # A script that catches it and goes on is still paused, until somebody lets it go.
        seen.commands.close()
        train(2)
    assert seen.state.step == 3


def test_closing_queue_in_another_thread_releases_at_once() -> None:
    with watched(commands=CommandQueue()) as seen:
        thread = when_held(seen, seen.commands.close)
        train(4, submitting_at(1, seen, Pause))
        thread.join()
    assert pauses(seen) == [(True, 1), (False, 1)]
    assert seen.state.step == 4


def test_commands_before_the_first_forward_wait_for_it() -> None:
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)])
    with watched(commands=commands) as seen:
        seen.submit(lambda id_: SetTrainable(id_, "0", False))
        seen.submit(lambda id_: SetTrainable(id_, "1.bias", False))
        seen.submit(Pause)
        assert seen.all(CommandApplied) == []
        assert [command.path for command in seen.state.pending_toggles()] == ["0", "1.bias"]
        model = train(3)
    assert [(event.command.id, event.step) for event in seen.all(CommandApplied)] == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, False]
    assert seen.state.pending == {}


# ---- where no boundary is


def test_accumulation_in_eval_mode_has_no_boundary_within() -> None:
    """The first forward is taken for evaluation until a backward follows; the ones after it are no boundary either."""
    model = nn.Linear(4, 2).eval()
    flags: list[bool] = []
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in seen.steps(9, {1: lambda id_: SetTrainable(id_, "bias", False)}):
            model(X).square().mean().backward()
            flags.append(model.bias.requires_grad)
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert flags == [True] * 3 + [False] * 6
    assert [event.step for event in seen.all(CommandApplied)] == [1]


def test_forward_between_backward_and_step_is_no_boundary() -> None:
    """Logging, or a second loss of the same model."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            model(X).square().mean().backward()
            if number == 1:
                seen.submit(lambda id_: SetTrainable(id_, "0", False))
            model(X).mean().backward()
            with torch.no_grad():
                model(X)
            assert model[0].weight.requires_grad == (number < 2)
            optimizer.step()
            optimizer.zero_grad()
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def test_forward_in_hook_of_backward_is_no_boundary() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    other = nn.Linear(4, 4)
    within: list[bool] = []

    def hook(gradient: Tensor) -> None:
        if not within:
            seen.submit(lambda id_: SetTrainable(id_, "Sequential.0", False))
        other(torch.ones(1, 4))
        within.append(model[0].weight.requires_grad)

    with watched() as seen:
        optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
        other(X).sum().backward()
        optimizer.step()
        for _ in range(2):
            output = model(X)
            output.register_hook(hook)
            output.square().mean().backward()
            optimizer.step()
    assert within == [True, False]
    assert [event.step for event in seen.all(CommandApplied)] == [2]


def spend(seconds: float) -> None:
    until = monotonic() + seconds
    while monotonic() < until:
        pass


@pytest.mark.parametrize("end", ["stop", "ctrl+c"])
def test_run_ended_while_held_has_no_negative_cost(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the report at the beginning of the hold, which may take long, become negative in the next one."""

    def interrupt(queue: CommandQueue) -> None:
        spend(0.05)
        if end == "ctrl+c":
            raise KeyboardInterrupt
        queue.submit(StopTraining)

    monkeypatch.setattr(ProcessGroupWatch, "look", lambda _watch: spend(0.02))
    with (
        watched(commands=ScriptedCommands([interrupt])) as seen,
        pytest.raises(SystemExit if end == "stop" else KeyboardInterrupt),
    ):
        train(3, submitting_at(1, seen, Pause))
    assert 0 <= seen.probe.hooks.own_ns < 10**12
    assert all(event.own_seconds >= 0 for event in seen.all(Progress))
