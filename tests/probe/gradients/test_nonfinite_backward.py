"""The operation that NaN in gradients comes from: by the values that it was given, or as the only one that it may be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn

from gradtui.probe.autograd import ModuleCallLogger
from gradtui.probe.gradients.newest_backward import NewestBackward
from gradtui.probe.gradients.nonfinite_backward import Watch
from gradtui.probe.gradients.nonfinite_values import Made
from gradtui.probe.torch_private.private_names import sequence_number
from gradtui.protocol.events import NonFiniteCause, NonFiniteFound
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.bad_steps import nonfinite_text

Loss = Callable[[Tensor], Tensor]
BAD = 2
"""The step, counted from 0, in which the model's output is zero."""


def found_after(loss_of: Loss, *, logged: bool = False) -> NonFiniteFound:
    torch.manual_seed(0)
    with watched() as seen:
        if not logged:
            seen.probe.norms.bad_steps._tracer = ModuleCallLogger()
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


@pytest.mark.parametrize(
    ("loss_of", "operation", "cause"),
    [
        (lambda y: y.square().sum(1).sqrt().sum(), "SqrtBackward0", NonFiniteCause.SQRT_SLOPE),
        (lambda y: y.square().sum(1).pow(0.5).sum(), "PowBackward0", NonFiniteCause.POWER_SLOPE),
        (lambda y: (1 - y.square()).acos().sum(), "AcosBackward0", NonFiniteCause.ARC_SLOPE),
        (lambda y: torch.where(y.abs() > 0, y.square().log(), y).sum(), "LogBackward0", NonFiniteCause.LOG_SLOPE),
        (lambda y: torch.where(y != 0, 1 / y, y).sum(), "ReciprocalBackward0", NonFiniteCause.BY_ZERO),
        (lambda y: torch.where(y != 0, y / y, y).sum(), "DivBackward0", NonFiniteCause.ZERO_BY_ZERO),
        (
            lambda y: torch.where(y == 0, y, (y + 100 * (y == 0)).exp()).sum(),
            "ExpBackward0",
            NonFiniteCause.EXP_OVERFLOW,
        ),
        # Of two kinds, the values tell which one it was.
        (
            lambda y: y.square().sum(1).sqrt().sum() + (1 + y.square()).log().sum(),
            "SqrtBackward0",
            NonFiniteCause.SQRT_SLOPE,
        ),
    ],
)
def test_values_that_were_read_tell_the_cause(loss_of: Loss, operation: str, cause: NonFiniteCause) -> None:
    found = found_after(loss_of, logged=True)
    assert (found.operation, found.cause) == (operation, cause)
    assert f"NaN: {cause.value}" in nonfinite_text(found)


@pytest.mark.parametrize("logged", [False, True])
def test_gradients_that_only_overflow(logged: bool) -> None:
    """1e40 is beyond what float32 holds, 3.4e38."""
    with watched() as seen:
        if not logged:
            seen.probe.norms.bad_steps._tracer = ModuleCallLogger()
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        output = model(torch.ones(3, 2))
        loss = ((output - output.detach()) * 1e20).sum() * 1e20
        loss.backward()
        optimizer.step()
    found = seen.all(NonFiniteFound)[0]
    assert (found.value, found.phase) == ("Inf", Phase.BACKWARD)
    assert (found.cause, found.dtype) == (NonFiniteCause.OVERFLOW, "float32")


def test_of_two_kinds_none_is_named() -> None:
    assert found_after(lambda y: y.square().sum(1).sqrt().sum() + (1 + y.square()).log().sum()).operation is None


def test_without_the_loss_none_is_named() -> None:
    class Lost(nn.Module):
        def forward(self, y: Tensor) -> Tensor:
            return y.square().sum(1).sqrt().sum()

    torch.manual_seed(0)
    with watched() as seen:
        seen.probe.norms.bad_steps._tracer = ModuleCallLogger()
        model = nn.Linear(4, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(2):
            Lost()(model(torch.full((3, 4), 1.0 - step))).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.all(NonFiniteFound)[0].operation is None


@pytest.mark.parametrize(
    ("loss_of", "operation"),
    [
        (lambda y: y.square().sum(1).sqrt().sum(), "SqrtBackward0"),
        (lambda y: y.abs().pow(0.5).sum(), "PowBackward0"),
        (lambda y: torch.where(y != 0, y.abs(), 1 - y).log().sum() + y.square().log1p().sqrt().sum(), "SqrtBackward0"),
    ],
)
def test_operation_is_watched_in_measured_steps(loss_of: Loss, operation: str) -> None:
    """The graph has the form of that of a logged step, and the loss is not kept."""
    logger = ModuleCallLogger()
    with watched() as seen:
        torch.manual_seed(0)
        model = nn.Linear(4, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(BAD + 1):
            if step == BAD:
                seen.probe.norms.bad_steps._tracer = logger
            optimizer.zero_grad()
            loss_of(model(torch.rand(3, 4) * (step != BAD))).backward()
            optimizer.step()
    (found,) = seen.all(NonFiniteFound)
    assert (found.phase, found.step, found.operation) == (Phase.BACKWARD, BAD + 1, operation)
    assert found.cause in (NonFiniteCause.SQRT_SLOPE, NonFiniteCause.POWER_SLOPE)


def test_a_graph_of_another_form_is_not_watched() -> None:
    with watched() as seen:
        torch.manual_seed(0)
        model = nn.Linear(4, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            if step == BAD:
                seen.probe.norms.bad_steps._tracer = ModuleCallLogger()
            optimizer.zero_grad()
            outputs = model(torch.rand(3, 4)).abs()
            (outputs.sqrt().sum() if step < BAD else outputs.sum()).backward()
            optimizer.step()
    assert seen.all(NonFiniteFound) == []
    assert seen.probe.norms.bad_steps._newest._watches == ()


class StandInNode:
    """A node of a graph whose loss is on the CPU, though it has saved a tensor on another device."""

    next_functions = ()

    def __init__(self, data: torch.Tensor) -> None:
        self._raw_saved_result = SimpleNamespace(data=data, unpack_hook=None)
        self._saved_result = data  # Before torch 2.10 this one is read.
        self.grad_fn = self

    def _sequence_nr(self) -> int:
        return sequence_number()

    def name(self) -> str:
        return "SqrtBackward0"


def test_device_values_are_read_only_in_samples() -> None:
    watch = Watch((), "SqrtBackward0", "_raw_saved_result", 0.0, Made(NonFiniteCause.SQRT_SLOPE, None))
    newest = NewestBackward()
    newest._watches = (watch,)
    # A tensor without values raises an error at any read, and then nothing is watched any more.
    newest.note_root(cast("torch.Tensor", StandInNode(torch.empty(3, device="meta"))))
    assert (newest._watches, newest._touched) == ((watch,), {})
    newest.note_root(cast("torch.Tensor", StandInNode(torch.zeros(3))))
    assert newest._touched == {"SqrtBackward0": watch.made}
