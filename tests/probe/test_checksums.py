"""Checksums of tensors: what changes them, on the CPU and by the arithmetic that a device does."""

from __future__ import annotations

import pytest
import torch

from gradtui.probe.checksums import Checksums

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.complex64]


def of(tensor: torch.Tensor, *, as_device: bool) -> bytes | int:
    if as_device:
        flat = torch.view_as_real(tensor).view(-1) if tensor.is_complex() else tensor.view(-1)
        return int(Checksums()._weighted(flat).item())
    found = Checksums().of(tensor)
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize("as_device", [False, True], ids=["memory", "weighted sum"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_two_elements_that_change_places_change_the_checksum(kind: torch.dtype, as_device: bool) -> None:
    values = torch.tensor([1, -1, 2, -2, 3, 4, -4, 0]).to(kind)
    before = of(values, as_device=as_device)
    for one in range(len(values)):
        for other in range(one):
            swapped = values.clone()
            swapped[[one, other]] = values[[other, one]]
            assert of(swapped, as_device=as_device) != before, (one, other)
    for turned in (values.flip(0), values.roll(1), values[[1, 0, 3, 2, 4, 5, 6, 7]], values[[1, 0, 2, 3, 4, 6, 5, 7]]):
        assert of(turned.contiguous(), as_device=as_device) != before
    assert of(values.clone(), as_device=as_device) == before


@pytest.mark.parametrize("as_device", [False, True], ids=["memory", "weighted sum"])
def test_any_change_of_one_element_changes_the_checksum(as_device: bool) -> None:
    # More than one piece of the weighted sum, and less than two.
    values = torch.zeros(300_000)
    before = of(values, as_device=as_device)
    seen = {before}
    for place, value in ((0, -0.0), (1, 1.0), (262_143, -1.0), (262_144, 2.0), (299_999, 1e-45)):
        values[place] = value
        seen.add(of(values, as_device=as_device))
    assert len(seen) == 6


def test_memory_that_cannot_be_read_has_no_checksum() -> None:
    emptied = torch.ones(4)
    emptied.untyped_storage().resize_(0)
    assert Checksums().of(emptied) is None
    assert Checksums().of(torch.ones(4, device="meta")) is None
    assert Checksums().of(torch.ones(4).to_sparse()) is None
    assert Checksums().of(torch.empty(0)) == b""


def test_a_view_in_another_order_has_the_checksum_of_its_memory() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert Checksums().of(values.t()) == Checksums().of(values)
    assert Checksums().of(values[:, :2]) == Checksums().of(values[:, :2].clone())
