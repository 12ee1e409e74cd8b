"""Parameters and losses of a class with its own `__torch_function__`: no access of ours calls it, nor a function mode."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toggling import COMMANDS
from helpers.watched import ScriptedCommands, watched
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gradtui
from gradtui.probe.autograd import OperationLog
from gradtui.probe.torch_private import subclasses_below_modes
from gradtui.protocol import commands as all_commands
from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    FollowMicroSteps,
    Intervention,
    PauseAtBadStep,
    RunTo,
    SaveCheckpoint,
    SetCheckpointing,
    SetTrainable,
    ShowRank,
    TraceGradient,
    TraceStep,
    Watch,
)

calls: Counter[str] = Counter()
models: list[Any] = []
"""The model of the newest run."""


class Chatty(torch.Tensor):
    """Each call of its `__torch_function__` is seen by a counter and by the random state."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls[str(func)] += 1
        random.random()
        return super().__torch_function__(func, types, args, kwargs or {})


class Listening(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def chatty() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().as_subclass(Chatty)))
    return model


def train(steps: int, each: Callable[[int], object] = lambda number: None) -> tuple[list[Any], Counter[str]]:
    """What a run ends with, and what `__torch_function__` was called with."""
    torch.manual_seed(0)
    random.seed(0)
    model = chatty()
    models[:] = [model]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.linspace(-1, 1, 24).view(6, 4)
    calls.clear()
    for number in range(steps):
        each(number)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    seen = Counter(calls)
    return [random.random(), *(p.tolist() for p in model.parameters())], seen


MAKE: dict[type[Command], Callable[[int], Command]] = {
    **COMMANDS,
    SetCheckpointing: lambda id_: SetCheckpointing(id_, "nowhere", True),
    RunTo: lambda id_: RunTo(id_, 100),
    ClearBreakpoint: lambda id_: ClearBreakpoint(id_, 1),
    FollowMicroSteps: lambda id_: FollowMicroSteps(id_, True),
    Watch: lambda id_: Watch(id_, ("0.weight", "3.bias")),
    TraceGradient: lambda id_: TraceGradient(id_, "0"),
    ShowRank: lambda id_: ShowRank(id_, 1),
}
"""Commands that need arguments. A module that is checkpointed is called again: what it calls then is the script's own."""


def command_kinds() -> Iterator[type[Command]]:
    for kind in vars(all_commands).values():
        if isinstance(kind, type) and issubclass(kind, Command) and kind not in (Command, Intervention):
            yield kind


@pytest.mark.parametrize("budget", [1e6, 0.01])
def test_watched_run_calls_it_as_plainly(budget: float) -> None:
    plain = train(12)
    with watched(budget=budget):
        assert train(12) == plain


@pytest.mark.parametrize("budget", [1e6, 0.01])
def test_nor_does_a_function_mode_see_more_calls(budget: float) -> None:
    with Listening():
        plain = train(12)
    with watched(budget=budget), Listening():
        assert train(12) == plain


class Unwrapping(Chatty):
    """Operations return plain tensors, as those of torchvision's `tv_tensors` do: backward runs outside of it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        return result.as_subclass(torch.Tensor) if isinstance(result, torch.Tensor) else result


def train_on_inputs(steps: int) -> Counter[str]:
    """What `__torch_function__` of the inputs, which backward reads, was called with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    calls.clear()
    for _ in range(steps):
        x = torch.linspace(-1, 1, 24).view(6, 4).as_subclass(Unwrapping)
        optimizer.zero_grad()
        loss = model(x).square().mean() + (x * model[0].weight.sum()).mean()
        assert type(loss) is torch.Tensor
        loss.backward()
        optimizer.step()
    return Counter(calls)


def test_nor_does_backward_with_such_inputs() -> None:
    plain = train_on_inputs(40)
    with watched(budget=1e6):
        assert train_on_inputs(40) == plain


@pytest.mark.parametrize("interval", [1, 1_000])
@pytest.mark.parametrize("begins", [0, 8])
@pytest.mark.parametrize("mode", [Listening, Operations])
def test_buffered_steps_add_no_calls_to_mode(
    mode: type[Listening | Operations], begins: int, interval: int, set_reading_interval: Callable[[int], None]
) -> None:
    """The mode begins with the run, or between two buffered steps."""
    set_reading_interval(interval)
    buffered: list[bool] = []

    def run(is_buffered: Callable[[], bool]) -> Counter[str]:
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x = torch.linspace(-1, 1, 24).view(6, 4)
        calls.clear()
        buffered.clear()
        with contextlib.ExitStack() as stack:
            for number in range(20):
                if number == begins:
                    stack.enter_context(mode())
                optimizer.zero_grad()
                loss = model(x).square().mean()
                buffered.append(is_buffered())
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
        return Counter(calls)

    plain = run(lambda: False)
    with watched(budget=0.0) as seen:
        seen.probe.step_sampler._cadence._warmup = 2
        observed = run(lambda: seen.probe.buffer.idle != 0)
    assert observed == plain
    assert sum(plain.values()) > 100
    assert buffered[10:] == [True] * 10


@pytest.mark.parametrize("kind", [TraceStep, Watch, TraceGradient, FollowMicroSteps, PauseAtBadStep, RunTo])
def test_reading_after_command_does_not_call_it(kind: type[Command]) -> None:
    plain = train(12)
    with watched(commands=ScriptedCommands()) as seen:
        assert train(12, lambda number: seen.submit(MAKE.get(kind, kind)) if number in (2, 5) else None) == plain


@pytest.mark.parametrize("budget", [1e6, 0.01])
def test_frozen_by_command_is_watched_without_calls(budget: float) -> None:
    def only_after(number: int) -> None:
        if number == 6:
            calls.clear()

    def by_itself(number: int) -> None:
        only_after(number)
        if number == 2:
            for parameter in models[-1][3].parameters():
                parameter.requires_grad_(False)
                parameter.grad = None

    def by_command(number: int) -> None:
        only_after(number)
        if number == 2:
            seen.submit(lambda id_: SetTrainable(id_, "3", False))

    plain = train(40, by_itself)
    with watched(budget=budget) as seen:
        observed = train(40, by_command)
    assert observed[1] == plain[1]
    assert observed[0][1:] == plain[0][1:]


def test_watch_by_script_adds_no_calls() -> None:
    def asks(number: int) -> None:
        if number == 0:
            opened.append(gradtui.watch(models[-1], progress=False))
        if number == 5:
            gradtui.load_state_dict(gradtui.state_dict())
            opened[0].summary()
        if number == 9:
            opened[0].close()

    opened: list[Any] = []
    plain = train(12)
    assert train(12, asks) == plain


@pytest.mark.parametrize("kind", list(command_kinds()), ids=lambda kind: kind.__name__)
def test_no_command_calls_it(kind: type[Command], tmp_path: Path) -> None:
    """The calls while a command is applied; what the script calls afterwards may differ, as its model does."""
    make = MAKE.get(kind, kind)
    if kind is SaveCheckpoint:
        make = lambda id_: SaveCheckpoint(id_, str(tmp_path / "saved.pt"))  # noqa: E731
    before: list[Counter[str]] = []
    with watched(commands=ScriptedCommands(), budget=1e6) as seen:
        apply = seen.probe.dispatcher._boundary.apply

        def counted(command: Command, step: int, **options: Any) -> Any:
            calls.clear()
            try:
                return apply(command, step, **options)
            finally:
                before.append(Counter(calls))

        seen.probe.dispatcher._boundary.apply = counted  # type: ignore[method-assign]
        try:
            train(6, lambda number: seen.submit(make) if number in (2, 4) else None)
        except SystemExit:
            assert kind.__name__ == "StopTraining"
    assert before
    assert sum(before, Counter()) == {}


def test_subclasses_refused_below_mode_are_made_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with torch 2.4. What stands in for `as_subclass` is there only while a mode is entered."""
    monkeypatch.setattr(subclasses_below_modes, "_are_refused", lambda: True)
    made: list[bool] = []
    call = torch.Tensor.as_subclass

    class Outside(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made.append(func is torch.ops.aten.alias.default)
            return func(*args, **(kwargs or {}))

    with Outside():
        mode = OperationLog()
        mode.enter()
        assert type(torch.ones(2).as_subclass(Chatty)) is Chatty
        mode.leave()
    assert (made.count(True), torch.Tensor.as_subclass) == (0, call)
