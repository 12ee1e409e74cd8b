"""The operation that NaN in gradients probably comes from: the only one whose derivative may not be finite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from watched import watched

from gradtui.protocol.events import NonFiniteFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import nonfinite_text

Loss = Callable[[Tensor], Tensor]
BAD = 2
"""The step, counted from 0, in which the model's output is zero."""


def found_after(loss_of: Loss) -> NonFiniteFound:
    torch.manual_seed(0)
    with watched() as seen:
        model = nn.Linear(4, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            inputs = torch.zeros(3, 4) if step == BAD else torch.rand(3, 4)
            optimizer.zero_grad()
            loss = loss_of(model(inputs))
            assert loss.isfinite()
            loss.backward()
            optimizer.step()
            if step == BAD:
                break
    (found,) = seen.all(NonFiniteFound)
    assert (found.phase, found.step) == (Phase.BACKWARD, BAD + 1)
    return found


@pytest.mark.parametrize(
    ("loss_of", "operation"),
    [
        # The derivative of the square root is infinite at 0, and that of the square is 0.
        (lambda y: y.square().sum(1).sqrt().sum(), "SqrtBackward0"),
        (lambda y: y.square().sum(1).pow(0.5).sum(), "PowBackward0"),
        (lambda y: (1 - y.square()).acos().sum(), "AcosBackward0"),
        (lambda y: torch.where(y.abs() > 0, y.square().log(), y).sum(), "LogBackward0"),
        # A square and a constant divisor have finite derivatives.
        (lambda y: (y.pow(2).sum(1) / 3).sqrt().sum(), "SqrtBackward0"),
    ],
)
def test_the_only_such_operation_is_named(loss_of: Loss, operation: str) -> None:
    found = found_after(loss_of)
    assert found.operation == operation
    assert nonfinite_text(found).endswith(f"NaN, probably from {operation} (last finite step {BAD})")


def test_of_two_kinds_none_is_named() -> None:
    assert found_after(lambda y: y.square().sum(1).sqrt().sum() + (1 + y.square()).log().sum()).operation is None


def test_without_the_loss_none_is_named() -> None:
    class Lost(nn.Module):
        def forward(self, y: Tensor) -> Tensor:
            return y.square().sum(1).sqrt().sum()

    torch.manual_seed(0)
    with watched() as seen:
        model = nn.Linear(4, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(2):
            Lost()(model(torch.full((3, 4), 1.0 - step))).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.all(NonFiniteFound)[0].operation is None
