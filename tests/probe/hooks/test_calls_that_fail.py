"""A call of torch that fails raises what it raises without gradtui, and its traceback has no frame of gradtui."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from helpers.training import small_net
from helpers.watched import watched
from torch import nn
from torch.utils.data import DataLoader

X = torch.linspace(-1, 1, 24).view(6, 4)


class Twice:
    """Parameters that can be asked for again, and count how often."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters, self.times = parameters, 0

    def __iter__(self) -> Iterator[nn.Parameter]:
        self.times += 1
        return iter(self.parameters)


def calls(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Callable[[], object]]:
    scaler, lr = torch.amp.GradScaler("cpu"), torch.optim.lr_scheduler
    return {
        "forward": lambda: model(1),
        "forward without arguments": model,
        "backward": lambda: torch.ones(3).backward(),
        "step": lambda: optimizer.step(lambda: 1 / 0),  # type: ignore[arg-type]
        "Optimizer.zero_grad": lambda: optimizer.zero_grad(1, 2),  # type: ignore[call-arg]
        "Module.zero_grad": lambda: model.zero_grad(x=1),  # type: ignore[call-arg]
        "Module.state_dict": lambda: model.state_dict(1, 2, 3, 4),  # type: ignore[call-overload]
        "Module.state_dict with a word": lambda: model.state_dict(x=1),  # type: ignore[call-overload]
        "Optimizer.state_dict": lambda: optimizer.state_dict(1),  # type: ignore[call-arg]
        "Module.load_state_dict": lambda: model.load_state_dict({}),
        "Module.load_state_dict without arguments": lambda: model.load_state_dict(),  # type: ignore[call-arg]
        "Optimizer.load_state_dict": lambda: optimizer.load_state_dict({"param_groups": [], "state": {}}),
        "Optimizer.load_state_dict without arguments": lambda: optimizer.load_state_dict(),  # type: ignore[call-arg]
        "save": lambda: torch.save(),  # type: ignore[call-arg]
        "save one": lambda: torch.save(1),  # type: ignore[call-arg]
        "save with a word": lambda: torch.save(1, x=1),  # type: ignore[call-arg]
        "load": lambda: torch.load(),  # type: ignore[call-arg]
        "load nothing": lambda: torch.load("/nowhere"),
        "clip": lambda: nn.utils.clip_grad_norm_(1, 1),  # type: ignore[arg-type]
        "clip without arguments": lambda: nn.utils.clip_grad_norm_(),  # type: ignore[call-arg]
        "clip once": lambda: nn.utils.clip_grad_norm_(iter([1]), 1),  # type: ignore[list-item]
        "optimizer": lambda: torch.optim.SGD([], lr=1),
        "scheduler": lambda: lr.LambdaLR(optimizer, [len, len]),
        "scheduler without arguments": lambda: lr.StepLR(),  # type: ignore[call-arg]
        "loader": lambda: next(iter(DataLoader([1, "a"], batch_size=2))),  # type: ignore[arg-type]
        "loader of nothing": lambda: DataLoader(1, batch_size=-1),  # type: ignore[arg-type]
        "scaler": lambda: scaler.step(optimizer),
        "scale": lambda: scaler.scale("a"),  # type: ignore[call-overload]
        "unscale": lambda: scaler.unscale_(1),  # type: ignore[arg-type]
        "scaler without arguments": lambda: scaler.step(),  # type: ignore[call-arg]
        "disabled scaler": lambda: torch.amp.GradScaler("cpu", enabled=False).step(None),  # type: ignore[arg-type]
    }


def fails() -> dict[str, str]:
    """Return by name of a call the report on its error."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X).square().mean().backward()
    optimizer.step()
    found: dict[str, str] = {}
    for name, call in calls(model, optimizer).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call()
            except Exception:
                found[name] = traceback.format_exc()
    return found


def test_reports_are_those_without_gradtui() -> None:
    alone = fails()
    with watched(budget=1.0):
        seen = fails()
    assert "disabled scaler" in alone
    for name, report in alone.items():
        assert seen.pop(name) == report, name
    assert not seen


def test_parameters_to_clip_are_asked_for_once() -> None:
    model = small_net()
    given = Twice([*model.parameters()])
    with watched(budget=1.0):
        model(X).square().mean().backward()
        nn.utils.clip_grad_norm_(given, 1.0)
    assert given.times == 1


@pytest.mark.parametrize("is_active", [True, False])
def test_failing_nested_backward_has_no_frame_of_gradtui(is_active: bool) -> None:
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            torch.ones(3).backward()
            return gradient

    with watched(budget=1.0) as seen:
        output = Nested.apply(small_net()(X)).sum()  # type: ignore[no-untyped-call]
        if not is_active:
            seen.probe.hooks.active = False
        with pytest.raises(RuntimeError) as caught:
            output.backward()
    assert "gradtui/probe" not in "".join(traceback.format_exception(caught.value))
