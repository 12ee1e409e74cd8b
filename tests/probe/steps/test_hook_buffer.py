"""Steps that are only marked: the probe knows afterwards what it would have known at once."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import loops
from helpers.training import small_net, square_step
from helpers.watched import Watched, watched
from torch import nn
from zoo import SPECIMENS

import gradtui
from gradtui.probe.probe import Probe
from gradtui.probe.sampling import step_sampler
from gradtui.probe.steps import event_replay
from gradtui.probe.steps.hook_buffer import FORWARD, STEP, HookEventBuffer
from gradtui.protocol.commands import Pause, Resume, SetTrainable
from gradtui.protocol.events import CommandApplied, PauseChanged
from gradtui.transport.in_process import CommandQueue

WARM_UP = 2
X = torch.linspace(-1, 1, 24).view(6, 4)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, set_sample_cost: Callable[[float], None]) -> list[int]:
    """How many marks were replayed each time; steps are sampled only while warming up."""
    set_sample_cost(0.001)
    replayed: list[int] = []
    make = Probe.__init__

    def with_a_short_warm_up(self: Probe, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        self.step_sampler._cadence._warmup = WARM_UP
        replay = self.buffer._replay
        self.buffer._replay = lambda marks: (replayed.append(len(marks) // 2), replay(marks))[1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(Probe, "__init__", with_a_short_warm_up)
    monkeypatch.setattr(step_sampler, "_AFTER_A_CHANGE", 1)
    return replayed


@pytest.fixture
def replayed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are like the one before are replayed as all others, so that every phase is heard of, in order."""
    monkeypatch.setattr(event_replay, "_behind", lambda _whats, _begin, end: end)


def known(seen: Watched) -> tuple[object, ...]:
    """All that is counted of a run, the phases it went through, and what was measured of each step."""
    state = seen.state
    visits = {phase.value: record.count for phase, record in state.phases.items() if record.count}
    counts = state.step, state.micro_steps, state.skipped_steps, state.optimizer_steps
    # NaN is not equal to itself.
    return *counts, visits, seen.phases, [*map(repr, seen.figures())], [*map(repr, seen.memory_totals())]


def trained(loop: str, name: str) -> Watched:
    """Eight steps of this loop with this specimen, watched without a budget."""
    torch.manual_seed(0)
    specimen = SPECIMENS[name]()
    with watched(budget=0.0) as seen:
        loops.LOOPS[loop](specimen.model, specimen.batch, specimen.loss, 8)
    seen.check_that_phases_fill_the_time()
    return seen


@pytest.mark.parametrize(("loop", "name"), loops.with_specimens("mlp", "checkpointed", "frozen_encoder_with_prompt"))
@pytest.mark.usefixtures("replayed_one_by_one", "every_step_is_read")
def test_nothing_of_any_loop_is_lost(
    loop: str, name: str, replayed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = trained(loop, name)
    if (loop, name) == ("plain", "mlp"):
        assert sum(replayed) >= 4 * 7, "in the plainest of loops most steps are marked"
    replayed.clear()
    monkeypatch.setattr(HookEventBuffer, "begin", lambda *_, **__: None)
    assert known(trained(loop, name)) == known(marked)
    assert not replayed


@pytest.mark.usefixtures("replayed_one_by_one")
def test_past_of_step_is_told_before_following(replayed: list[int]) -> None:
    model, other = small_net(), small_net()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(24):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            if number == 6:
                other(X)
            loss.backward(retain_graph=number == 9)
            if number == 9:
                loss.backward()
            with torch.no_grad():
                if number == 12:
                    model(X)
            group = optimizer.param_groups[0]
            if number == 15:
                group["lr"] = "unusable"
                with pytest.raises(Exception):  # noqa: B017, PT011 - whatever torch makes of it
                    optimizer.step()
                group["lr"] = 0.1
            if number == 18:
                continue
            optimizer.step()
    assert replayed
    assert (seen.state.step, seen.state.micro_steps) == (23, 25)
    assert seen.phases.count("eval") == 1
    at = [index for index, phase in enumerate(seen.phases) if phase == "optimizer"]
    assert at[11] < seen.phases.index("eval") < at[12]
    seen.check_that_phases_fill_the_time()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    square_step(model, optimizer, X)


def test_raising_steps_are_not_counted(replayed: list[int]) -> None:
    model = small_net()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(20):
            step(model, optimizer)
            if number % 5 == 4:
                with pytest.raises(RuntimeError):
                    model(X[:, :3])
                group = optimizer.param_groups[0]
                model(X).sum().backward()
                group["lr"] = "unusable"
                with pytest.raises(Exception):  # noqa: B017, PT011 - whatever torch makes of it
                    optimizer.step()
                group["lr"] = 0.1
    assert replayed
    assert (seen.state.step, seen.state.micro_steps) == (20, 24)


@pytest.mark.usefixtures("replayed_one_by_one")
def test_other_things_in_between_are_told_in_order(replayed: list[int]) -> None:
    model, other = small_net(), small_net()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(12):
            step(model, optimizer)
            if number == 6:
                with torch.no_grad():
                    model(X)
            if number == 9:
                step(other, torch.optim.SGD(other.parameters(), lr=0.1))
    assert replayed
    assert seen.state.optimizer_steps == [12, 1]
    assert seen.phases.count("eval") == 1
    at = [index for index, phase in enumerate(seen.phases) if phase == "optimizer"]
    assert at[6] < seen.phases.index("eval") < at[7]


def test_command_is_applied_at_first_boundary_after_it(replayed: list[int]) -> None:
    model = small_net()
    commands = CommandQueue()
    with watched(budget=0.0, commands=commands) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(1, 13):
            step(model, optimizer)
            if number == 7:
                seen.submit(lambda id: SetTrainable(id, "Sequential.0", False))
            if number == 10:
                assert replayed
                seen.submit(Pause)
                seen.submit(Resume)
        frozen = [p.requires_grad for p in model.parameters()]
    applied = seen.all(CommandApplied)
    assert [event.step for event in applied] == [7, 10, 10]
    assert applied[0].parameters == (0, 1)
    assert not any(event.paused for event in seen.all(PauseChanged)), "both were waiting: there was nothing to hold for"
    assert frozen == [False, False, True, True]


def test_command_is_applied_before_forward_of_its_step(replayed: list[int]) -> None:
    model = small_net()
    seen_by_forward = []
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model[0].register_forward_hook(lambda module, *_: seen_by_forward.append(module.weight.requires_grad))
        for number in range(10):
            step(model, optimizer)
            if number == 6:
                assert seen.probe.buffer.marks_go_on
                seen.submit(lambda id: SetTrainable(id, "Sequential.0", False))
    assert replayed
    assert seen_by_forward == [True] * 7 + [False] * 3


@pytest.mark.parametrize(("steps_of_a_forward", "stop_after", "forwards_over"), [(1, 9, 8), (2, 15, 7)])
def test_run_ends_after_step_it_was_told_to(
    steps_of_a_forward: int, stop_after: int, forwards_over: int, replayed: list[int]
) -> None:
    model, done = small_net(), []

    def train() -> None:
        while True:
            step(model, optimizer)
            for _ in range(steps_of_a_forward - 1):
                optimizer.step()
            done.append(1)

    with watched(budget=0.0, stop_after=stop_after) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(SystemExit):
            train()
    assert replayed
    assert (len(done), seen.state.step) == (forwards_over, stop_after)


@pytest.mark.parametrize(("interrupted", "executed"), [(FORWARD, 20), (-STEP, 21)])
def test_ctrl_c_between_marks_loses_no_step(interrupted: int, executed: int, replayed: list[int]) -> None:
    model = small_net()
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        marks = seen.probe.buffer
        add = marks.add

        def interrupt(mark: tuple[int, int]) -> None:
            add(mark)
            if mark[0] == interrupted:
                marks.add = add
                raise KeyboardInterrupt

        for number in range(20):
            if number == 12:
                assert marks.thread
                marks.add = interrupt  # type: ignore[assignment]
            try:
                step(model, optimizer)
            except KeyboardInterrupt:
                step(model, optimizer)
    assert replayed
    assert (seen.state.step, seen.state.micro_steps) == (executed, executed)


def test_phase_of_marked_step_can_be_asked(replayed: list[int]) -> None:
    model, heard = small_net(), []
    with watched(budget=0.0) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model[0].register_forward_hook(lambda *_: heard.append(seen.probe.buffer.phase()))
        for _ in range(6):
            step(model, optimizer)
    assert heard[-1] is not None
    assert heard[-1].value == "forward"


def test_nothing_is_kept_alive(replayed: list[int]) -> None:
    model = small_net()
    with watched(budget=0.0):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            step(model, optimizer)
        gone = weakref.ref(model), weakref.ref(optimizer)
        del model, optimizer
        gc.collect()
        assert [reference() for reference in gone] == [None, None]
    assert replayed


def test_a_forked_child_takes_no_marks(replayed: list[int]) -> None:
    model = small_net()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(WARM_UP + 20):
            step(model, optimizer)
        marks = seen.probe.buffer
        marks.begin(perf_counter_ns(), model, optimizer, seen.probe.dispatcher.freezes, steps=1_000, is_bare=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            gc.disable()  # the garbage of other tests may need threads that this process does not have
            try:
                before = len(marks._taken), len(replayed)
                # No backward: torch refuses one in a child where another test has started threads of the engine.
                for _ in range(3):
                    optimizer.zero_grad()
                    model(X)
                    optimizer.step()
                os.write(writing, b"none" if (len(marks._taken), len(replayed)) == before else b"some")
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert os.read(reading, 4) == b"none"
        os.close(reading)


def test_loss_function_error_shows_no_own_frame(replayed: list[int]) -> None:
    model, loss = small_net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched(budget=0.0) as seen:
        for _ in range(WARM_UP + 20):
            step(model, optimizer)
        output = model(X)
        assert seen.probe.buffer.marks_go_on
        with pytest.raises(AttributeError) as raised:
            loss(output, None)
    ours = str(Path(gradtui.__file__).parent)
    assert [entry for entry in raised.traceback if str(entry.path).startswith(ours)] == []


def test_late_buffer_is_due_as_before() -> None:
    """A step of half a second whose forward begins 0.1 s before its end is replayed at its end, not one step later."""
    replayed: list[list[int]] = []
    buffer = HookEventBuffer((), lambda events: replayed.append([*events]))
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    registry = SimpleNamespace(freezes={})
    buffer.begin(0, model, optimizer, registry, steps=2, is_bare=True)  # type: ignore[arg-type]
    buffer.between = True
    buffer.add((STEP, 500_000_000))
    buffer.flush(500_000_000)
    buffer.leave()
    buffer.begin(900_000_000, model, optimizer, registry, steps=2, is_bare=True)  # type: ignore[arg-type]
    assert buffer.flush_at < 1_000_000_000
    assert buffer.flush_within_at > 1_000_000_000
    assert replayed == [[STEP, 500_000_000]]
