"""Norms of sparse gradients without `coalesce`, which waits for a device."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.operations import CountedOperations
from helpers.watched import watched
from torch import nn

from gradtui.probe.gradients import grad_histograms, grad_norms, grad_stats
from gradtui.probe.gradients.grad_norms import norm_of_repeated, would_wait
from gradtui.protocol.commands import Watch
from gradtui.protocol.events import GradientFiguresMeasured, GradientsMeasured

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]


WAITS = {"_coalesce", "coalesce", "unique", "_unique2", "unique_consecutive", "nonzero", "item", "_local_scalar_dense"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("piece", [1 << 20, 64], ids=["one piece", "pieces"])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_norm_is_that_of_what_repeats_added_up(
    dtype: torch.dtype, piece: int, dimensions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grad_norms, "piece_bytes", lambda device, needed: piece)
    torch.manual_seed(0)
    indices = torch.randint(0, 4, (dimensions, 23))
    values = torch.randint(-3, 4, (23, 6)).to(dtype)
    dense = torch.zeros(*[4] * dimensions, 6, dtype=torch.complex128)
    for column, value in zip(indices.t().tolist(), values):
        dense[tuple(column)] += value
    expected = math.sqrt(sum(abs(each) ** 2 for each in dense.flatten().tolist()))
    gradient = torch.sparse_coo_tensor(indices, values, dense.shape, check_invariants=True)
    with CountedOperations() as asked:
        found = norm_of_repeated(gradient)
    assert not asked.counts.keys() & WAITS
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_gradient_without_any_row_has_norm_0() -> None:
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.ones(0, 4), (10, 4), check_invariants=True)
    assert norm_of_repeated(empty).item() == 0


def test_only_a_device_is_not_waited_for() -> None:
    indices, values = torch.tensor([[1, 1]]), torch.ones(2, 4)
    repeated = torch.sparse_coo_tensor(indices, values, (10, 4), check_invariants=True)
    assert not would_wait(repeated)
    assert not would_wait(torch.ones(3))
    on_device = torch.sparse_coo_tensor(indices.to("meta"), values.to("meta"), (10, 4), check_invariants=False)
    assert would_wait(on_device)


def test_gradients_of_embedding_on_device_are_never_coalesced(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_device(gradient: torch.Tensor) -> bool:
        return gradient.layout is torch.sparse_coo and not gradient.is_coalesced()

    for module in (grad_norms, grad_stats, grad_histograms):
        monkeypatch.setattr(module, "would_wait", on_device)

    def refuses(gradient: torch.Tensor) -> torch.Tensor:
        raise AssertionError("this would wait for the device")

    monkeypatch.setattr(torch.Tensor, "coalesce", refuses)
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, 2.0, 2.0]]))
    with watched() as seen:
        seen.submit(lambda number: Watch(number, ("0.weight",)))
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            # Row 1 is looked up three times: its gradient is 3 * (1, 2, 2), that of row 4 is (1, 2, 2).
            model(torch.tensor([1, 4, 1, 1])).sum().backward()
            optimizer.step()
    told = [event.total for event in seen.all(GradientsMeasured) if event.total is not None]
    assert told == pytest.approx([math.sqrt(9 * 9 + 3 * 3)] * 3)
    # Their figures would need to know how many rows differ.
    assert not seen.all(GradientFiguresMeasured)
