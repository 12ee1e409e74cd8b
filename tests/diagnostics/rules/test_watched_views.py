"""GT227 under the probe: views with the sizes of a permutation, and those that merge or split dimensions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.matches_after import matches_after
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gradtui.probe.autograd.mixed_axes import is_permuted

CONVOLUTION = nn.Conv2d(3, 16, 1)
"""Of images (4, 3, 5, 3): maps (4, 16, 5, 3)."""
LINEAR, OF_PLACES, OF_ALL = nn.Linear(16, 2), nn.Linear(15, 2), nn.Linear(240, 2)
NORM, GROUPS, OTHER = nn.LayerNorm(16), nn.GroupNorm(4, 16), nn.Conv2d(5, 2, 1)
ENCODER, ATTENTION = nn.TransformerEncoderLayer(16, 2, 8, batch_first=True), nn.MultiheadAttention(16, 4)
LSTM, LSTM_OF_PLACES = nn.LSTM(16, 4, batch_first=True), nn.LSTM(15, 4, batch_first=True)


def found(head: Callable[[Tensor], Tensor]) -> list[tuple[object, object]]:
    """Return the sizes before and after each reported view of the output of a convolution."""

    def train() -> None:
        optimizer = torch.optim.SGD(CONVOLUTION.parameters(), lr=0.01)
        for _ in range(4):
            head(CONVOLUTION(torch.randn(4, 3, 5, 3))).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return [(each.evidence["before"], each.evidence["after"]) for each in matches_after("GT227", train)]


@pytest.mark.parametrize(
    ("head", "after"),
    [
        (lambda maps: LINEAR(maps.view(4, 15, 16)), (4, 15, 16)),
        (lambda maps: NORM(maps.reshape(4, 15, 16) + torch.ones(15, 16)), (4, 15, 16)),
        (lambda maps: ENCODER(maps.view(4, 15, 16)), (4, 15, 16)),
        (lambda maps: LSTM(maps.view(4, 15, 16))[0], (4, 15, 16)),
        (lambda maps: F.cross_entropy(maps.view(-1, 16), torch.zeros(60, dtype=torch.long)), (60, 16)),
        (lambda maps: OTHER(maps.view(4, 5, 3, 16)), (4, 5, 3, 16)),
    ],
    ids=["linear", "norm after an embedding", "transformer", "LSTM", "classes", "convolution"],
)
def test_a_view_for_a_permutation(head: Callable[[Tensor], Tensor], after: tuple[int, ...]) -> None:
    assert found(head) == [("(4, 16, 5, 3)", str(after))]


@pytest.mark.parametrize(
    "head",
    [
        lambda maps: LINEAR(maps.flatten(2).transpose(1, 2)),
        lambda maps: LINEAR(maps.permute(0, 2, 3, 1).reshape(4, 15, 16)),
        lambda maps: OF_PLACES(maps.view(4, 16, 15)),
        lambda maps: OF_ALL(maps.view(4, -1)),
        lambda maps: ATTENTION(*[maps.flatten(2).permute(2, 0, 1)] * 3)[0],
        lambda maps: GROUPS(maps),
        # Groups of as many channels as a map has rows and columns, normalized by hand.
        lambda maps: maps.view(4, 15, 16) - maps.view(4, 15, 16).mean(-1, keepdim=True),
        lambda maps: F.cross_entropy(maps.permute(0, 2, 3, 1).reshape(-1, 16), torch.zeros(60, dtype=torch.long)),
        lambda maps: F.cross_entropy(maps, torch.zeros(4, 5, 3, dtype=torch.long)),
        lambda maps: nn.functional.pixel_shuffle(maps, 4),
        lambda maps: LSTM_OF_PLACES(maps.flatten(2))[0],
    ],
)
def test_views_that_are_right(head: Callable[[Tensor], Tensor]) -> None:
    assert found(head) == []


def test_sizes_of_a_permutation() -> None:
    assert is_permuted((7, 4, 16), (4, 7, 16))
    assert is_permuted((4, 16, 1, 9), (4, 9, 16))
    assert is_permuted((4, 6, 20, 8), (4, 20, 48))
    assert is_permuted((8, 32, 4, 4), (8, 16, 32))
    assert is_permuted((4, 15, 16), (4, 16, 5, 3))


def test_sizes_of_dimensions_in_order() -> None:
    # A map of as many channels as positions, heads, windows, a matrix, and sizes that no permutation has.
    # Attention over as many heads as its size is a multiple of the batch: (T, N * heads, size) as (T * N, heads * size).
    assert not is_permuted((15, 16, 4), (60, 16))
    assert not is_permuted((20, 256, 32), (640, 256))
    assert not is_permuted((8, 16, 64), (8, 64, 16))
    assert not is_permuted((4, 16, 4, 4), (4, 16, 16))
    assert not is_permuted((4, 15, 32), (4, 15, 8, 4))
    assert not is_permuted((4, 2, 2, 3, 3, 8), (16, 3, 3, 8))
    assert not is_permuted((4, 7), (7, 4))
    assert not is_permuted((4, 6, 10), (4, 15, 4))
    assert not is_permuted((), ())
