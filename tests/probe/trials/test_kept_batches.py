"""What a try keeps of batches that the script has dropped is not counted as the script's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.samplers.cpu_memory import MallocAllocator
from gradtui.probe.trials import BatchesGivenAgain
from gradtui.system.own_memory import OWN

BATCHES, ROWS, WIDTH = 12, 8, 40_000
BATCH_BYTES = ROWS * WIDTH * 4


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    OWN.kept = 0


def totals_while_recorded(iterator: Any, allocator: MallocAllocator) -> tuple[BatchesGivenAgain, list[int]]:
    """Record all batches as a script's loop takes them. Return the bytes in use after each."""
    totals = []
    batches = BatchesGivenAgain([iterator])
    for _ in range(BATCHES):
        batches.requested(iterator)
        batch = next(iterator)
        batches.given(iterator, batch)
        totals.append(allocator.read().total or 0)
    return batches, totals


@pytest.mark.parametrize("workers", [0, 1])
def test_dropped_batches_are_not_in_use(workers: int) -> None:
    allocator = MallocAllocator()
    data = torch.zeros(BATCHES * ROWS, WIDTH)
    iterator = iter(DataLoader(TensorDataset(data), batch_size=ROWS, num_workers=workers))
    batches, totals = totals_while_recorded(iterator, allocator)
    # The first three steps: it has not been seen yet that the script drops them.
    assert max(totals[3:]) - min(totals[3:]) < BATCH_BYTES / 4
    taken = OWN.kept
    assert taken == pytest.approx((BATCHES - 1) * BATCH_BYTES, rel=0.05)
    batches.begin_again()
    again = []
    for _ in range(BATCHES):
        batch = batches.again(iterator).batch
        again.append(allocator.read().total or 0)
    assert max(again) - min(totals[3:]) < 1.25 * BATCH_BYTES
    assert batch is not None
    batches.forget()
    assert OWN.kept == 0


def test_batches_that_script_keeps_are_its_own_memory() -> None:
    kept = [[torch.zeros(ROWS, WIDTH)] for _ in range(BATCHES)]
    totals_while_recorded(iter(DataLoader(kept, batch_size=None)), MallocAllocator())  # type: ignore[arg-type]
    # Two random states of each batch.
    assert OWN.kept < BATCHES * 40_000
