"""The time of each module, forward and backward, against a clock that only the modules' own code moves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from helpers.fake_cuda_graphs import FakeCuda
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.probe.autograd import OUTSIDE
from gradtui.probe.sampling.module_clock import ModuleClock
from gradtui.probe.sampling.module_times import ModuleTimes, TimedStep
from gradtui.probe.torch_private.private_names import current_graph_task_id
from gradtui.protocol.events import ModuleTimesMeasured
from gradtui.system.own_frames import PACKAGE_DIRECTORY

MS = 1_000_000
WIDTH = 4


class Clock:
    """Nanoseconds that only `work` moves, and each reading by a `tick`."""

    def __init__(self) -> None:
        self.now, self.tick = 0, 0

    def __call__(self) -> int:
        self.now += self.tick
        return self.now

    def work(self, milliseconds: int) -> None:
        self.now += milliseconds * MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that all of the probe reads."""
    clock = Clock()
    for name, module in [*sys.modules.items()]:
        if name.startswith("gradtui.probe") and hasattr(module, "perf_counter_ns"):
            monkeypatch.setattr(module, "perf_counter_ns", clock)
    return clock


class _Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: Clock, forward: int, backward: int) -> Tensor:
        ctx.clock, ctx.milliseconds = clock, backward
        clock.work(forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        ctx.clock.work(ctx.milliseconds)
        return gradient.clone(), None, None, None


class Works(nn.Module):
    """Its forward and its backward take so many milliseconds."""

    def __init__(self, clock: Clock, forward: int, backward: int) -> None:
        super().__init__()
        self.clock, self.milliseconds = clock, (forward, backward)
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Work.apply(x * self.weight, self.clock, *self.milliseconds)
        return result


class Block(nn.Module):
    """Two parts, and 1 ms of its own; `reentrant` says how its parts are checkpointed."""

    def __init__(self, clock: Clock, *, reentrant: bool | None = None) -> None:
        super().__init__()
        self.clock, self.reentrant = clock, reentrant
        self.one, self.two = Works(clock, 2, 30), Works(clock, 4, 50)

    def parts(self, x: Tensor) -> Tensor:
        return torch.relu_(self.two(self.one(x)))

    def forward(self, x: Tensor) -> Tensor:
        self.clock.work(1)
        return self.parts(x) if self.reentrant is None else checkpoint(self.parts, x, use_reentrant=self.reentrant)


class Net(nn.Module):
    """A first layer, and a list of blocks, which is never called itself."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def train(model: nn.Module, steps: int = 4, micro_steps: int = 1) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_steps):
            model(torch.ones(2, WIDTH)).sum().backward()
        optimizer.step()


def times(model: nn.Module, train: Callable[[nn.Module], None] = train) -> dict[str, tuple[float, ...]]:
    """Milliseconds by module: forward, its own, backward, its own. Operations are not logged in any step."""
    with watched(budget=0.0) as seen:
        train(model)
    return shown(seen)


def shown(seen: Watched) -> dict[str, tuple[float, ...]]:
    found = seen.state.tree.times
    assert found is not None
    rows = zip(found.forward, found.own_forward, found.backward, found.own_backward)
    return {
        module.path: tuple(each / MS for each in row)
        for module, row in zip(seen.state.tree.modules, rows)
        if module.subtree_parameters
    }


def test_self_and_total_forward_and_backward(clock: Clock) -> None:
    assert times(Net(Block(clock), Block(clock))) == {
        "": (14, 0, 160, 0),
        "first": (0, 0, 0, 0),
        "blocks": (14, 0, 160, 0),
        **{f"blocks.{index}": (7, 1, 80, 0) for index in range(2)},
        **{f"blocks.{index}.one": (2, 2, 30, 30) for index in range(2)},
        **{f"blocks.{index}.two": (4, 4, 50, 50) for index in range(2)},
    }


def test_what_gradtui_takes_itself_belongs_to_no_module(clock: Clock) -> None:
    clock.tick = MS // 100
    found = times(Net(Block(clock), Block(clock)))
    assert found["blocks.1"] == pytest.approx((7, 1, 80, 0), abs=0.1)
    assert found["blocks.1.two"] == pytest.approx((4, 4, 50, 50), abs=0.05)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_backward_of_rerun_modules(clock: Clock, reentrant: bool) -> None:
    found = times(Net(Block(clock, reentrant=reentrant), Block(clock)))
    assert found["blocks.0.one"] == (2, 2, 32, 32)
    assert found["blocks.0.two"] == (4, 4, 54, 54)
    assert found["blocks.0"] == (7, 1, 86, 0)
    assert found["blocks"] == (14, 0, 166, 0)
    assert found["blocks.1"] == (7, 1, 80, 0)


def test_frozen_module_has_time_of_passing_gradient(clock: Clock) -> None:
    model = Net(Block(clock), Block(clock))
    model.blocks[1].requires_grad_(False)
    assert times(model)["blocks.1"] == (7, 1, 80, 0)


def test_frozen_module_below_has_no_backward(clock: Clock) -> None:
    model = Net(Block(clock), Block(clock))
    model.first.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    assert times(model)["blocks.0"] == (7, 1, 0, 0)


class Shares(nn.Module):
    """Calls one module twice, and a part of another module in its own forward."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.twice, self.owner = Works(clock, 1, 10), Block(clock)

    def forward(self, x: Tensor) -> Tensor:
        return self.owner.two(self.owner(self.twice(self.twice(x))))


def test_modules_called_twice_and_in_forward_of_another(clock: Clock) -> None:
    found = times(Shares(clock))
    assert found["twice"] == (2, 2, 20, 20)
    assert found["owner.two"] == (8, 8, 100, 100)
    assert found["owner"] == (7, 1, 80, 0)
    assert found[""] == (13, 0, 150, 0)


def test_micro_steps_add_up(clock: Clock) -> None:
    found = times(Net(Block(clock)), lambda model: train(model, micro_steps=3))
    assert found["blocks.0"] == (21, 3, 240, 0)


def test_a_compiled_module_is_one_region(clock: Clock) -> None:
    model = Net(nn.Linear(WIDTH, WIDTH), Block(clock))
    model.blocks[0].compile(backend="eager")
    found = times(model)
    assert found["blocks.0"] == (0, 0, 0, 0)
    assert found["blocks.1"] == (7, 1, 80, 0)


def test_steps_whose_operations_are_logged_are_not_timed(clock: Clock) -> None:
    with watched() as seen:
        train(Net(Block(clock)), steps=6)
    (found,) = seen.all(ModuleTimesMeasured)
    # Of six steps the first is not timed, and the memory of those from the third on is profiled.
    assert (found.samples, found.is_on_device) == (1, False)


class AlarmError(Exception):
    """What a script's signal handler raises to end a step."""


def alarm(*_: object) -> None:
    raise AlarmError


def test_handler_error_waits_for_end_of_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    model, backwards = Net(nn.Linear(WIDTH, WIDTH)), count()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    turn = ModuleClock._turn

    def interrupted(*arguments: Any, **named: Any) -> None:
        if current_graph_task_id() != -1 and next(backwards) == 0:
            signal.raise_signal(signal.SIGALRM)
        turn(*arguments, **named)

    monkeypatch.setattr(ModuleClock, "_turn", interrupted)
    former = signal.signal(signal.SIGALRM, alarm)
    try:
        with watched(budget=0.0):
            train(model, steps=1)
            optimizer.zero_grad()
            loss = model(torch.ones(2, WIDTH)).sum()
            with pytest.raises(AlarmError) as caught:
                loss.backward()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert all(each.grad is not None for each in model.parameters())
    assert not [entry for entry in caught.traceback if str(entry.path).startswith(PACKAGE_DIRECTORY)]


def test_no_hook_stays_on_an_operation_after_backward(clock: Clock) -> None:
    model = Net(Block(clock))
    with watched(budget=0.0) as seen:
        train(model, steps=1)
        loss = model(torch.ones(2, WIDTH)).sum()
        loss.backward(retain_graph=True)
        before = clock.now
        assert not seen.probe.step_sampler.modules.clock._handles
        loss.backward()
        assert clock.now - before == 80 * MS


def test_outputs_and_gradients_are_those_of_plain_python(clock: Clock) -> None:
    def trained() -> list[Tensor]:
        torch.manual_seed(0)
        model = Net(Block(clock), Block(clock, reentrant=False), Block(clock, reentrant=True), nn.Dropout(0.5))
        train(model, steps=3, micro_steps=2)
        return [tensor for each in model.parameters() for tensor in (each.detach(), each.grad) if tensor is not None]

    plain = trained()
    with watched(budget=0.0) as seen:
        observed = trained()
    assert seen.state.tree.times is not None
    assert all(torch.equal(one, other) for one, other in zip(plain, observed))


def measured(steps: ModuleTimes, modules: int) -> ModuleTimesMeasured:
    found = steps.measured(1.0, 9, 1, [-1] * modules, is_on_device=False)
    assert found is not None
    return found


def test_a_module_that_calls_itself_counts_once() -> None:
    steps = ModuleTimes()
    outer = steps.places.of(0, OUTSIDE)
    inner = steps.places.of(0, outer)
    steps.add(0, TimedStep({inner: 3, outer: 4}))
    found = measured(steps, 1)
    assert (found.forward, found.own_forward) == ((7,), (7,))


def of(steps: ModuleTimes, **own: int) -> TimedStep:
    """A step in which modules `a`, `b` … ran so long, one after the other."""
    return TimedStep({steps.places.of("abc".index(name), OUTSIDE): each for name, each in own.items()}, cost=1_000)


def test_single_slow_call_does_not_count() -> None:
    steps = ModuleTimes()
    for each in ({"a": 1, "b": 900}, {"a": 3, "b": 2}, {"a": 900, "b": 3}, {"a": 2, "b": 2}, {"a": 2, "b": 4}):
        steps.add(0, of(steps, **each))
    found = measured(steps, 2)
    assert found.forward == (2, 3)
    assert found.samples == 5
    assert found.cost == pytest.approx(1e-6)


def test_occasional_module_counts_in_part() -> None:
    steps = ModuleTimes()
    for each in ({"a": 1, "b": 8}, {"a": 1}, {"a": 1}, {"a": 1, "b": 8}):
        steps.add(0, of(steps, **each))
    assert measured(steps, 2).forward == (1, 4)


def test_steps_of_several_optimizers_add_up() -> None:
    steps = ModuleTimes()
    steps.add(0, of(steps, a=5))
    steps.add(1, of(steps, a=1, b=4))
    assert measured(steps, 2).own_forward == (6, 4)
    steps.clear()
    assert steps.measured(1.0, 9, 1, [-1, -1], is_on_device=False) is None


class DeviceClock(Clock):
    """The clock of a device, in milliseconds."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self.cuda = cuda

    def work(self, milliseconds: int) -> None:
        self.cuda.clock_ms += milliseconds


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, as_on_a_device: None) -> FakeCuda:
    return FakeCuda(monkeypatch)


def test_on_device_times_are_those_between_events(cuda: FakeCuda) -> None:
    model = Net(Block(DeviceClock(cuda)), Block(DeviceClock(cuda), reentrant=False))
    with watched(budget=0.0) as seen:
        accountant = seen.probe.step_sampler._memory.accountant
        accountant.devices, accountant.follow = (torch.device("cuda", 0),), lambda tree: None  # type: ignore[method-assign]
        train(model)
    found = shown(seen)
    assert found[""] == (14, 0, 166, 0)
    assert found["blocks.0.two"] == (4, 4, 50, 50)
    assert found["blocks.1.two"] == (4, 4, 54, 54)
    assert seen.state.tree.times is not None
    assert seen.state.tree.times.is_on_device
