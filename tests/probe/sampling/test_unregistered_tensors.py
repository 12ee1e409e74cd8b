"""Tensors that get gradients and that nothing updates are found and named; those that the script uses otherwise are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.protocol.events import UnregisteredTensor, UnregisteredTensorsFound

STEPS = 12


class Net(nn.Module):
    """Multiplies by what `hold` has assigned to it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.gate: Tensor = torch.ones(4)
        self.scales: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x) * self.gate
        for scale in self.scales:
            x = x * scale
        return x


def found(train: Callable[[], object]) -> list[UnregisteredTensor]:
    with watched() as seen:
        train()
        events = seen.all(UnregisteredTensorsFound)
    return list(events[-1].tensors) if events else []


def loop(
    model: nn.Module, loss_of: Callable[[Tensor], Tensor], *more: Tensor, after: Callable[[], object] = int
) -> None:
    """Train the model, with an optimizer that has `more` too."""
    optimizer = torch.optim.SGD([*model.parameters(), *more], lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(torch.randn(2, 4))).backward()
        after()
        optimizer.step()


def mean(output: Tensor) -> Tensor:
    return output.square().mean()


def test_the_result_of_a_conversion_and_a_list() -> None:
    model = Net()
    model.gate = nn.Parameter(torch.randn(4).double()).float()
    model.scales = [nn.Parameter(torch.randn(4)), torch.randn(4, requires_grad=True)]
    gate, first, second = sorted(found(lambda: loop(model, mean)), key=lambda each: each.holder or "")
    assert gate == UnregisteredTensor("gate", True, "ToCopyBackward0", True, False, 4, 1)
    assert first == UnregisteredTensor("scales[0]", True, None, True, False, 4, 1)
    assert second == UnregisteredTensor("scales[1]", True, None, False, False, 4, 1)


def test_a_variable_of_a_function() -> None:
    def train() -> None:
        weights = nn.Parameter(torch.ones(4))
        model = nn.Linear(4, 4)
        # Not a closure: the loss is computed here.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (model(torch.randn(2, 4)) * weights).square().mean().backward()
            optimizer.step()

    (only,) = found(train)
    assert (only.holder, only.of_module, only.is_joined) == ("weights", False, True)


def test_a_variable_of_a_closure() -> None:
    weights = nn.Parameter(torch.ones(4))
    (only,) = found(lambda: loop(nn.Linear(4, 4), lambda output: mean(output * weights)))
    assert only.is_parameter
    assert only.holder is not None


def owned(model: Net, extra: Tensor) -> None:
    model.gate = extra
    loop(model, mean, extra)


def updated_by_hand(model: Net, extra: Tensor) -> None:
    """By `.data`, which does not raise the version."""
    model.gate = extra
    loop(model, mean, after=lambda: extra.data.sub_(extra.grad))  # type: ignore[arg-type]


def differentiated(model: Net, extra: Tensor) -> None:
    """As invariant risk minimization does it."""

    def loss(output: Tensor) -> Tensor:
        error = mean(output * extra)
        return error + torch.autograd.grad(error, extra, create_graph=True)[0].square().sum()

    loop(model, loss)


def without_influence(model: Net, extra: Tensor) -> None:
    model.gate = extra
    loop(model, lambda output: mean(output) * 0)


def new_at_each_step(model: Net, extra: Tensor) -> None:
    loop(model, lambda output: mean(output + extra.clone().detach().requires_grad_()))


def an_input(model: Net, extra: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        mean(model(extra)).backward()
        optimizer.step()


@pytest.mark.parametrize(
    "train", [owned, updated_by_hand, differentiated, without_influence, new_at_each_step, an_input]
)
def test_tensors_that_are_as_they_should_be(train: Callable[[Net, Tensor], None]) -> None:
    assert found(lambda: train(Net(), torch.randn(4, requires_grad=True))) == []
