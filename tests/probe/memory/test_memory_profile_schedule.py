"""Steps that are taken apart in a watched run: what they say, when they are taken, and that the script never notices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from helpers.toggling import unfreeze
from helpers.training import bits, square_steps
from helpers.watched import CountingAllocator, ScriptedCommands, Watched, watched
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from gradtui.probe.autograd import GraphSummary
from gradtui.probe.memory import memory_profile_schedule
from gradtui.probe.memory.memory_profile_schedule import MemoryProfileSchedule
from gradtui.probe.model.model_registry import ModelRegistry
from gradtui.probe.runtime import HookSet, ReadingInterval, sampling_schedule
from gradtui.probe.runtime.context import RunClock
from gradtui.probe.runtime.sampling_schedule import SamplingSchedule, StepTime
from gradtui.probe.samplers.cpu_memory import MallocAllocator
from gradtui.probe.steps import ProbeContext, StepCounter
from gradtui.protocol.commands import Pause, Resume, TraceStep
from gradtui.protocol.events import CommandApplied, CommandRejected, MemoryMeasured, PauseChanged, StepMemoryProfiled
from gradtui.protocol.step_times import StepTimesMeasured
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.step_peaks import profiled_peaks

BATCH, WIDTH, DEPTH = 512, 128, 6
F32 = 4


@pytest.fixture(autouse=True)
def no_sample_counts_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(sampling_schedule, "_LONG_S", math.inf)


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers)


def train(model: nn.Module, steps: int, each: Callable[[int], object] = lambda step: None) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.ones(BATCH, WIDTH)
    square_steps(model, optimizer, x, steps, each)


def profiles_of(seen: Watched) -> list[StepMemoryProfiled]:
    return seen.all(StepMemoryProfiled)


def test_step_says_where_peak_was_and_who() -> None:
    model = deep()
    with watched(allocator=MallocAllocator()) as seen:
        train(model, 5)
    step = profiles_of(seen)[-1]
    size = sum(parameter.nbytes for parameter in model.parameters())
    held = {kind: sum(h.bytes for h in step.holdings if h.kind == kind) for kind in ("parameters", "optimizer_state")}
    assert held["parameters"] == size
    # Two moments; a step counter for each parameter.
    assert held["optimizer_state"] == 2 * size + F32 * 2 * DEPTH
    # The forward keeps what each Tanh returned.
    activations = sum(holding.bytes for holding in step.holdings if holding.kind == "activations")
    assert activations == pytest.approx(DEPTH * BATCH * WIDTH * F32, rel=0.4)
    assert step.peak_phase in (Phase.FORWARD, Phase.BACKWARD)
    assert [phase for phase, _ in step.phases][:1] == [Phase.FORWARD]
    assert {Phase.BACKWARD, Phase.OPTIMIZER} <= {phase for phase, _ in step.phases}
    assert step.peak_module == -1, (
        "the loss, which is computed outside of any module, is still there when backward begins"
    )
    assert sum(holding.bytes for holding in step.holdings) == step.peak


def test_the_ledger_knows_the_height_within_a_phase() -> None:
    model = deep()
    with watched(allocator=MallocAllocator()) as seen:
        train(model, 5)
    backward = seen.ledgers(Phase.BACKWARD)[-1]
    assert backward.peak is not None
    # The gradient of one activation and of the one before it are there at once, on top of what the forward kept.
    forward = seen.ledgers(Phase.FORWARD)[-1].held.total
    assert backward.peak >= forward + BATCH * WIDTH * F32


def test_cleared_gradients_do_not_get_forward_height() -> None:
    model = deep()
    with watched(allocator=CountingAllocator()) as seen:
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.ones(BATCH, WIDTH)
        for _ in range(5):
            with torch.no_grad():
                frozen = model(x)
            loss = model(x).square().mean() + frozen.mean()
            del frozen
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    profile = profiles_of(seen)[-1]
    of_phases = profiled_peaks(profile).phases
    highest = {phase: max(peak for each, peak in of_phases if each is phase) for phase, _ in of_phases}
    peaks = {event.phase: event.peak for event in seen.all(MemoryMeasured) if event.step == profile.step}
    assert peaks[Phase.ZERO_GRAD] == highest[Phase.ZERO_GRAD]
    assert peaks[Phase.FORWARD] == highest[Phase.FORWARD] > highest[Phase.ZERO_GRAD]


def test_step_is_profiled_when_asked_for() -> None:
    model = deep()
    with watched(budget=0.0, allocator=MallocAllocator()) as seen:
        train(model, 8, lambda step: seen.submit(TraceStep) if step == 5 else None)
    assert [event.step for event in profiles_of(seen)] == [6]
    assert len(seen.all(CommandApplied)) == 1
    assert seen.state.step_profile == profiles_of(seen)[0]


def test_held_run_steps_and_is_held_again() -> None:
    commands = ScriptedCommands(
        [lambda queue: queue.submit(lambda id_: TraceStep(id_, runs_step=True)), lambda queue: queue.submit(Resume)]
    )
    with watched(budget=0.0, allocator=MallocAllocator(), commands=commands) as seen:
        train(deep(), 8, lambda step: seen.submit(Pause) if step == 5 else None)
    assert [event.step for event in profiles_of(seen)] == [6]
    changes = [(event.paused, event.step) for event in seen.all(PauseChanged)]
    assert changes == [(True, 5), (False, 5), (True, 6), (False, 6)]
    assert seen.state.step == 8


def test_running_run_is_not_held_after_step() -> None:
    with watched(budget=0.0, allocator=MallocAllocator(), commands=ScriptedCommands()) as seen:
        train(deep(), 8, lambda step: seen.submit(lambda id_: TraceStep(id_, runs_step=True)) if step == 5 else None)
    assert [event.step for event in profiles_of(seen)] == [6]
    assert not seen.all(PauseChanged)


def test_the_first_by_itself_is_the_third_step() -> None:
    with watched(budget=1e-6, allocator=MallocAllocator()) as seen:
        train(deep(), 30)
    assert [event.step for event in profiles_of(seen)] == [3]


def test_a_step_that_raises_takes_the_mode_off() -> None:
    model = deep()
    with watched(allocator=MallocAllocator()) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            model(torch.ones(2, WIDTH)).sum().backward()
            rate = optimizer.param_groups[0]["lr"]
            if step == 4:
                optimizer.param_groups[0]["lr"] = None
                with pytest.raises(TypeError):
                    optimizer.step()
                optimizer.param_groups[0]["lr"] = rate
            else:
                optimizer.step()
        model(torch.ones(2, WIDTH))
    assert profiles_of(seen)
    assert _get_current_dispatch_mode() is None


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        self.operations += 1
        return func(*args, **(kwargs or {}))  # type: ignore[operator,dict-item]


@contextmanager
def counting() -> Iterator[Counting]:
    with Counting() as mode:
        yield mode


def test_mode_within_forward_sees_the_usual() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = deep()
            self.seen: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with counting() as mode:
                result: torch.Tensor = self.inner(x)
            self.seen.append(mode.operations)
            return result

    alone, ours = Own(), Own()
    train(alone, 5)
    with watched(allocator=MallocAllocator()) as seen:
        train(ours, 5)
    assert profiles_of(seen)
    assert ours.seen == alone.seen
    assert bits(ours) == bits(alone)


def test_under_mode_of_scripts_nothing_is_taken_apart() -> None:
    with watched(allocator=MallocAllocator()) as seen, counting():
        train(deep(), 5)
    assert profiles_of(seen) == []


def context_of(step_time: StepTime) -> ProbeContext:
    """Return a context that drops all events."""
    view, hooks = ModelRegistry(lambda event: None, RunClock(), lambda moved: None), HookSet(lambda *report: None)
    intervals = ReadingInterval(step_time), ReadingInterval(step_time)
    return ProbeContext(lambda event: None, RunClock(), view, StepCounter(), hooks, *intervals)


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    step_time = StepTime()
    traces = MemoryProfileSchedule(context_of(step_time), SamplingSchedule(0.01, step_time, warmup=0))
    assert "the models are on mps" in (traces.request("mps") or "")
    assert "history" in (traces.request("cuda") or "")
    assert not traces.is_due(5, "cuda")
    assert traces.steps_until_due(5, "cuda") > 1_000_000
    assert traces.request("cpu") is None
    assert traces.steps_until_due(5, "cpu") == 0


def test_what_is_compiled_stays_compiled() -> None:
    model = deep()
    compiled = torch.compile(model, backend="eager")
    with watched(allocator=MallocAllocator()) as seen:
        compiled(torch.ones(2, WIDTH)).sum().backward()
        train(compiled, 4, lambda step: seen.submit(TraceStep) if step == 2 else None)
    assert profiles_of(seen) == []
    assert "compile" in seen.all(CommandRejected)[0].reason


def test_optimizers_that_step_within_backward_are_left_alone() -> None:
    model = deep()
    with watched(allocator=MallocAllocator()) as seen:
        optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

        def step(parameter: torch.Tensor) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(4):
            model(torch.ones(2, WIDTH)).sum().backward()
    assert seen.state.optimizer_steps == [4] * len(optimizers)
    assert _get_current_dispatch_mode() is None


def test_first_profile_comes_once_cheap_enough() -> None:
    step_time = StepTime()
    traces = MemoryProfileSchedule(context_of(step_time), SamplingSchedule(1e-9, step_time, warmup=0))
    # 40 operations at 250 µs are 10 ms, a hundredth of one second.
    traces.on_backward((), GraphSummary(operations=40))
    due = []
    for step in range(2, 40):
        step_time.total += 0.05
        due += [step] if traces._is_early else []
    assert due == list(range(21, 40)), "until one has run"


def test_large_change_is_profiled_once() -> None:
    step_time = StepTime()
    traces = MemoryProfileSchedule(context_of(step_time), SamplingSchedule(1e-9, step_time, warmup=0))
    step_time.add(0.01)
    assert traces.is_due(2, "cpu"), "the first one"
    log = SimpleNamespace(own_ns=10_000_000, operations=0)
    traces._recorder = SimpleNamespace(log=log, close=lambda: None)  # type: ignore[assignment]
    traces.drop()
    assert traces.settle(0.01), "it has cost 10 ms"
    traces.outdate(2)
    due = []
    for step in range(3, 40):
        step_time.total += 0.01
        if traces.is_due(step, "cpu"):
            due.append(step)
            traces._is_outdated = False
    # 10 ms are a twentieth of the 200 ms of the steps 3 to 22.
    assert due == [22]


@pytest.mark.parametrize("changed_at", [0, 1, 10])
def test_step_creating_optimizer_state_is_not_profiled(changed_at: int) -> None:
    """The first step after a change may do so, and the first one of all."""
    step_time = StepTime()
    step_time.add(100.0)
    traces = MemoryProfileSchedule(context_of(step_time), SamplingSchedule(1e-9, step_time, warmup=0))
    traces.on_backward((), GraphSummary(operations=1))
    traces.outdate(changed_at)
    first = max(2, changed_at + 1)
    assert [traces.is_due(step, "cpu") for step in range(changed_at, first + 1)] == [False] * (first - changed_at) + [
        True
    ]
    assert traces.steps_until_due(changed_at, "cpu") == 0, "the schedule is asked again at the next step"
    assert traces.request("cpu") is None
    assert traces.is_due(changed_at, "cpu"), "the user requests it"


def test_profile_after_unfreeze_has_its_optimizer_state() -> None:
    model = deep()
    model[0].requires_grad_(False)
    with watched(allocator=MallocAllocator()) as seen:
        train(model, 30, lambda step: seen.submit(unfreeze("0")) if step == 6 else None)
    profiles = profiles_of(seen)
    after = next(each for each in profiles if each.step > 6)
    state = [
        sum(holding.bytes for holding in each.holdings if holding.kind == "optimizer_state")
        for each in (profiles[0], after)
    ]
    assert state[1] - state[0] == 2 * sum(each.nbytes for each in model[0].parameters()) + F32 * 2


def test_long_steps_are_not_all_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were they, nothing would say how long the script's own are."""
    monkeypatch.setattr(memory_profile_schedule, "_OPERATION_NS", 0)
    recorded = SamplingSchedule.record_cost

    def record_little(self: SamplingSchedule, seconds: float, beside: float = 0.0) -> None:
        recorded(self, min(seconds, 1e-9), min(beside, 1e-9))

    monkeypatch.setattr(SamplingSchedule, "record_cost", record_little)
    with watched(budget=0.5) as seen:
        train(deep(), 60)
    assert len(seen.all(StepMemoryProfiled)) >= 10
    assert seen.all(StepTimesMeasured)[-1].unsampled_steps >= 20
