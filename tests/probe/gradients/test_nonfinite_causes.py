"""What the first NaN or Inf of a forward was made of. The results of these operations are those of IEEE 754."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.nn import functional

from gradtui.protocol.events import NonFiniteCause as Cause
from gradtui.protocol.events import NonFiniteFound
from gradtui.protocol.vocabulary import Phase

Loss = Callable[[Tensor], Tensor]
BAD = 2
"""The step, counted from 0, in which the model's output of 4 rows and 3 columns is zero. Else it is above 0 and below 1."""
NAN, INF = math.nan, math.inf
ALL = torch.ones(4, 3, dtype=torch.bool)
LAST_ROW = torch.tensor([[0, 0, -INF], [0, 0, -INF], [0, -INF, -INF], [-INF, -INF, -INF]])


class Opaque(torch.autograd.Function):
    """Gives NaN, as code that nobody can read."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * NAN

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def found_after(loss_of: Loss, dtype: torch.dtype = torch.float32) -> NonFiniteFound:
    torch.manual_seed(0)
    with watched() as seen:
        model = nn.Linear(2, 3, bias=False).to(dtype)
        nn.init.constant_(model.weight, 0.25)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(BAD + 1):
            optimizer.zero_grad()
            output = model(torch.full((4, 2), float(step != BAD), dtype=dtype))
            (loss_of(output) if step == BAD else output.sum()).backward()
            optimizer.step()
    (found,) = seen.all(NonFiniteFound)
    assert (found.phase, found.step) == (Phase.FORWARD, BAD + 1)
    return found


@pytest.mark.parametrize(
    ("loss_of", "cause"),
    [
        (lambda y: (y / y).sum(), Cause.ZERO_BY_ZERO),
        (lambda y: y.sum() / torch.zeros(()), Cause.ZERO_BY_ZERO),
        (lambda y: (y + 1).sum() / torch.zeros(()), Cause.BY_ZERO),
        (lambda y: ((y + 1) / y).sum(), Cause.BY_ZERO),
        (lambda y: (1 / y).sum(), Cause.BY_ZERO),
        (lambda y: -y.log().mean(), Cause.LOG_OF_ZERO),
        (lambda y: -(y.softmax(1) * 0).log()[torch.arange(4), torch.tensor([0, 1, 2, 0])].mean(), Cause.LOG_OF_ZERO),
        (lambda y: (y * y.log()).sum(), Cause.LOG_OF_ZERO),
        (lambda y: (y - 1).log().mean(), Cause.LOG_OF_NEGATIVE),
        (lambda y: (y - 1).sqrt().sum(), Cause.SQRT_OF_NEGATIVE),
        (lambda y: (y.square().mean() - (y.mean() + 1).square()).sqrt(), Cause.SQRT_OF_NEGATIVE),
        (lambda y: (y - 1).pow(0.5).sum(), Cause.FRACTIONAL_POWER),
        (lambda y: (y + 2).acos().sum(), Cause.BEYOND_ONE),
        (lambda y: (y + 100).exp().mean(), Cause.EXP_OVERFLOW),
        (lambda y: ((y + 1) * 1e30).square().mean(), Cause.OVERFLOW),
        (lambda y: y.masked_fill(ALL, -INF).softmax(1).sum(), Cause.MASKED_ROW),
        (lambda y: (y + LAST_ROW).softmax(1).sum(), Cause.MASKED_ROW),
        (lambda y: (y + LAST_ROW).log_softmax(1)[:, 0].sum(), Cause.MASKED_ROW),
        (lambda y: y[:0].mean(), Cause.EMPTY_MEAN),
        (lambda y: functional.cross_entropy(y, torch.full((4,), -100)), Cause.EMPTY_LOSS),
        (lambda y: functional.cross_entropy(y, torch.full((4,), -100)) / 4, Cause.EMPTY_LOSS),
        (lambda y: functional.mse_loss(y[:0], y[:0]), Cause.EMPTY_LOSS),
        (lambda y: (y + 1).mean() * INF, Cause.TIMES_INF),
        (lambda y: y.mean() * INF, Cause.ZERO_TIMES_INF),
        (
            lambda y: (lambda masked: (masked - masked.amax(1, keepdim=True)).exp().sum())(y.masked_fill(ALL, -INF)),
            Cause.INF_MINUS_INF,
        ),
    ],
)
def test_what_it_was_made_of(loss_of: Loss, cause: Cause) -> None:
    assert found_after(loss_of).cause is cause


@pytest.mark.filterwarnings("ignore:std")
def test_the_deviation_of_one_element() -> None:
    assert found_after(lambda y: y[:1, 0].std()).cause is Cause.SPREAD_OF_ONE


def test_an_eps_that_float16_does_not_have() -> None:
    """The least number above 0 of float16 is 6e-8."""
    found = found_after(lambda y: (y / (y.abs().sum(1, keepdim=True) + 1e-8)).sum(), torch.float16)
    assert (found.cause, found.dtype) == (Cause.ZERO_BY_ZERO, "float16")


def test_a_sum_that_float16_does_not_hold() -> None:
    """The largest number of float16 is 65,504, which 12 elements of 8,000 exceed."""
    found = found_after(
        lambda y: (y + 8_000).square().sqrt().clamp_max(1).mean() * 0 + ((y + 80) * 100).sum(), torch.float16
    )
    assert (found.value, found.cause, found.dtype) == ("Inf", Cause.OVERFLOW, "float16")


@pytest.mark.parametrize(
    "loss_of",
    [
        # The logarithm of 0 is there, and does not come to the loss.
        lambda y: torch.where(y > 0, y.log(), y).sum() + torch.tensor(NAN),
        lambda y: y.log().masked_fill(ALL, 0.0).sum() + torch.tensor(NAN),
        lambda y: torch.cat((y, y + 1), 1).log().gather(1, torch.full((4, 1), 4)).sum() + torch.tensor(NAN),
        lambda y: torch.cat((y, y + 1), 1).log()[:, 3:].sum() + torch.tensor(NAN),
        # Nobody can read what made it.
        lambda y: Opaque.apply(y).sqrt().sum(),
        lambda y: Opaque.apply(y + 1).mean() / torch.ones(()),
        lambda y: functional.mse_loss(y, torch.full((4, 3), NAN)),
    ],
)
def test_what_is_not_known_is_not_told(loss_of: Loss) -> None:
    assert found_after(loss_of).cause is None
