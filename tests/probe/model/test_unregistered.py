"""Modules that run inside a model without being registered with it, and what is not to be taken for one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence

import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.protocol.vocabulary import UnregisteredModule
from gradtui.run.text.models import unregistered_lines

WIDTH = 4
LINEAR = WIDTH * WIDTH + WIDTH


class Net(nn.Module):
    """A head, and other modules that only a Python list knows."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH))
        self.layers = list(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.inner(x)


def train(net: nn.Module, parameters: Sequence[Tensor] | None = None, steps: int = 4) -> Watched:
    optimizer = torch.optim.SGD(list(net.parameters()) if parameters is None else parameters, lr=0.01)
    with watched() as seen:
        for _ in range(steps):
            net(torch.ones(2, WIDTH)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


def test_a_list_of_layers_that_no_optimizer_has() -> None:
    found = train(Net(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))).state.unregistered
    assert found == (UnregisteredModule("Net", "Linear", None, LINEAR, LINEAR, 0, LINEAR),) * 2
    assert unregistered_lines(found) == [
        f"2 × Linear ({2 * LINEAR} parameters) run inside Net but are not registered: "
        "parameters(), state_dict() and to() of Net leave them out",
        "no optimizer has the parameters of Linear, although they get a gradient; "
        "to register modules in a list, use nn.ModuleList",
    ]


def test_those_that_are_not_listed_are_counted() -> None:
    seen = train(Net(*(nn.Linear(WIDTH, WIDTH) for _ in range(70))))
    assert (len(seen.state.unregistered), seen.state.unregistered_omitted) == (64, 6)
    assert any(entry.text.startswith("6 more ") for entry in seen.state.log)


def test_it_is_noted_once() -> None:
    log = train(Net(nn.Linear(WIDTH, WIDTH))).state.log
    assert len([entry for entry in log if "not registered" in entry.text]) == 1


def test_owned_by_optimizer_is_unregistered_model() -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    net = Net(layer)
    (found,) = train(net, [*net.parameters(), *layer.parameters()]).state.unregistered
    assert found == UnregisteredModule("Net", "Linear", found.model, LINEAR, LINEAR, LINEAR, LINEAR)
    assert found.model is not None
    assert "to register Linear," in unregistered_lines([found])[1]


def test_only_topmost_is_told_with_content() -> None:
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Sequential(nn.Linear(WIDTH, WIDTH)))
    (found,) = train(Net(block)).state.unregistered
    assert (found.type_name, found.parameters) == ("Sequential", 2 * LINEAR)


def test_a_frozen_teacher_requires_no_gradient() -> None:
    teacher = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    (found,) = train(Net(teacher)).state.unregistered
    assert found == UnregisteredModule("Net", "Linear", None, LINEAR, 0, 0, 0)
    assert "require no gradient" in unregistered_lines([found])[1]


def test_the_innermost_caller_is_named() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Net(nn.Linear(WIDTH, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x)

    net = Outer()
    (found,) = train(net).state.unregistered
    assert found.caller == "block"


def test_modules_without_own_parameters_are_not_told() -> None:
    class Wrapping(nn.Module):
        """Made anew in every call around a module that is registered."""

        def __init__(self, wrapped: nn.Module) -> None:
            super().__init__()
            self.wrapped = wrapped

        def forward(self, x: Tensor) -> Tensor:
            return self.wrapped(x)

    class Calling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return nn.ReLU()(Wrapping(self.linear)(x))

    seen = train(Calling())
    assert seen.state.unregistered == ()
    assert unregistered_lines(()) == []


def test_two_successive_models_are_registered_nowhere() -> None:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
    with watched() as seen:
        for _ in range(4):
            second(first(torch.ones(2, WIDTH))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.state.unregistered == ()


def test_nothing_is_kept_alive() -> None:
    make: Callable[[], nn.Module] = lambda: nn.Linear(WIDTH, WIDTH)  # noqa: E731
    net = Net(make())
    layer = weakref.ref(net.layers[0])
    seen = train(net)
    assert seen.state.unregistered
    del net
    gc.collect()
    assert layer() is None
