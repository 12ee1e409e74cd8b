"""GT222 under the probe: losses of logits, of probabilities, and of their logarithms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.matches_after import matches_after
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CLASSES = torch.tensor([0, 2, 1, 2, 0])
SCORES = torch.tensor([[3.0, -1.0, 0.5]] * 5)
BITS = torch.tensor([[0.0, 1.0, 1.0]] * 5)


def found(loss: Callable[[Tensor], Tensor], *, ends_in: nn.Module | None = None) -> list[tuple[object, object, object]]:
    """Return the two functions and the module of what is reported of a loss of what a model returns."""

    def train() -> None:
        net = nn.Sequential(nn.Linear(4, 3), ends_in or nn.Identity())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            loss(net(torch.randn(5, 4))).backward()
            optimizer.step()
            optimizer.zero_grad()

    return [tuple(match.evidence.values()) for match in matches_after("GT222", train)]


def of_each_place(out: Tensor) -> Tensor:
    """The loss of each place of an image."""
    images = torch.stack([out, out.flip(0)], 2).softmax(1)
    return F.cross_entropy(images.permute(0, 2, 1).reshape(-1, 3), CLASSES.repeat_interleave(2))


def test_a_softmax_at_the_end() -> None:
    assert found(lambda out: F.cross_entropy(out, CLASSES), ends_in=nn.Softmax(1)) == [("softmax", "log_softmax", "1")]
    assert found(
        lambda out: 0.5 * F.cross_entropy(out.softmax(1), F.one_hot(CLASSES).float()) + out.square().mean()
    ) == [("softmax", "log_softmax", "")]
    assert found(of_each_place) == [("softmax", "log_softmax", "")]


def test_a_sigmoid_at_the_end() -> None:
    loss = nn.BCEWithLogitsLoss()
    assert found(lambda out: loss(out.squeeze(), BITS), ends_in=nn.Sigmoid()) == [
        ("sigmoid", "binary_cross_entropy_with_logits", "1")
    ]


def test_a_likelihood_of_other_values() -> None:
    likelihood = nn.NLLLoss()
    assert found(lambda out: likelihood(out, CLASSES)) == [("a linear layer", "nll_loss", "0")]
    assert found(lambda out: likelihood(out, CLASSES), ends_in=nn.Softmax(1)) == [("softmax", "nll_loss", "1")]
    assert found(lambda out: F.nll_loss(out.log_softmax(0), CLASSES)) == [
        ("log_softmax over the batch", "nll_loss", "")
    ]
    assert found(lambda out: F.nll_loss(out.log_softmax(-2), CLASSES))
    assert found(lambda out: F.nll_loss(out.log(), CLASSES), ends_in=nn.Softmax(0)) == [
        ("the log of a softmax over the batch", "nll_loss", "1")
    ]


def test_a_divergence_of_probabilities() -> None:
    target = torch.rand(5, 3).softmax(1)
    divergence = nn.KLDivLoss(reduction="batchmean")
    assert found(lambda out: divergence(out, target), ends_in=nn.Softmax(1)) == [("softmax", "kl_div", "1")]
    assert found(lambda out: (target - target * out.softmax(1)).square().sum()) == []


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: F.cross_entropy(out, CLASSES),
        # One sample: its only dimension is that of the classes.
        lambda out: F.nll_loss(out[0].log_softmax(0), CLASSES[0]),
        lambda out: F.cross_entropy(out.log_softmax(1), CLASSES),
        lambda out: F.nll_loss(out.softmax(1).log(), CLASSES),
        lambda out: F.binary_cross_entropy(out.sigmoid(), BITS),
        # The targets are probabilities, with a gradient.
        lambda out: F.binary_cross_entropy_with_logits(out, out.sigmoid()),
        lambda out: F.cross_entropy(out, (2 * out).softmax(1)),
        # Bounded scores, attention, and an average of predictions.
        lambda out: F.cross_entropy(out.sigmoid(), CLASSES),
        lambda out: F.cross_entropy(out.softmax(1) @ torch.eye(3), CLASSES),
        lambda out: F.cross_entropy((out.softmax(1) + out.flip(0).softmax(1)) / 2, CLASSES),
        lambda out: F.kl_div(out.log_softmax(1), out.detach().softmax(1), reduction="batchmean"),
        lambda out: F.nll_loss((out @ out.T).log_softmax(0), torch.arange(5)),
        lambda out: F.nll_loss((out @ out.T).softmax(0).log(), torch.arange(5)),
        lambda out: (SCORES.amax(1, keepdim=True) - SCORES * out.softmax(1)).sum(),
        lambda out: (torch.ones(5, 3) - 2 * SCORES.abs() * out.sigmoid()).mean(),
    ],
    ids=[
        "logits",
        "one sample",
        "logarithms",
        "their likelihood",
        "probabilities of bits",
        "soft bits",
        "soft classes",
        "scores",
        "attention",
        "an average",
        "distillation",
        "pairs",
        "pairs, by their logarithms",
        "regret",
        "an average of scores",
    ],
)
def test_losses_that_are_right(loss: Callable[[Tensor], Tensor]) -> None:
    assert found(loss) == []
