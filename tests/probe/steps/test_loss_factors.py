"""By which numbers a loss was divided, read from its graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradtui.probe.steps.loss_factors import divisors_of

X = torch.tensor([[0.5, 1.5, 2.0], [1.0, 0.0, 3.0]], requires_grad=True)
LABELS = torch.tensor([0, 2])


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        pytest.param(lambda: X.mean(), (), id="none"),
        pytest.param(lambda: X.mean() / 4, (4.0,), id="one"),
        pytest.param(lambda: X.mean() / 2 / 4, (4.0, 2.0), id="the last one first"),
        pytest.param(lambda: 0.25 * (X.mean() * 0.5), (4.0, 2.0), id="factors"),
        pytest.param(lambda: (X.mean() / 2).double() / 4, (4.0, 2.0), id="through another type"),
        pytest.param(lambda: X.mean() / torch.tensor(4.0), (4.0,), id="a tensor without dimensions"),
        pytest.param(lambda: (X / torch.ones(2, 3)).mean(), (), id="within the model"),
        pytest.param(lambda: X.sum() / 4 / 2, (2.0,), id="a mean of samples"),
        pytest.param(lambda: functional.cross_entropy(X, LABELS, reduction="sum") / 2 / 3, (3.0,), id="a summed loss"),
        pytest.param(
            lambda: functional.cross_entropy(X, LABELS, reduction="sum") / 8 / 1.0,
            (1.0, 4.0),
            id="the mean of four batches",
        ),
        pytest.param(
            lambda: functional.cross_entropy(X, torch.tensor([0, -100]), reduction="sum") / 1,
            (),
            id="a mean without a target that is left out",
        ),
        pytest.param(lambda: functional.cross_entropy(X, LABELS) / 4 / 2, (2.0, 4.0), id="a mean loss"),
        pytest.param(lambda: sum(each.mean() for each in (X, X, X, X)) / 4 / 2, (2.0,), id="a mean of terms"),
        pytest.param(lambda: (X.mean() + X.square().mean()) / 4 / 2, (2.0, 4.0), id="a loss and its regularisation"),
        pytest.param(lambda: X.mean() / X.std(), (), id="by what has a gradient"),
        pytest.param(lambda: X.mean() * 0, (), id="zero"),
    ],
)
def test_divisors(loss: Callable[[], Tensor], expected: tuple[float, ...]) -> None:
    assert divisors_of(loss().grad_fn, by_scaler=False) == expected


def test_the_factor_of_a_scaler_is_left_out() -> None:
    assert divisors_of((X.mean() / 4 * torch.tensor(1024.0)).grad_fn, by_scaler=True) == (4.0,)


def test_saved_tensors_under_script_hook_stay_unread() -> None:
    unpacked: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: unpacked.append(each) or each):
        loss = X.mean() / torch.tensor(4.0)
    assert divisors_of(loss.grad_fn, by_scaler=False) == ()
    assert unpacked == []
