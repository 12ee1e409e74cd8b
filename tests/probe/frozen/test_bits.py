"""Checksums of tensors: what changes them, on the CPU and by the arithmetic that a device does."""

from __future__ import annotations

import weakref

import pytest
import torch
from helpers.late_copies import unfinished_copies
from torch import nn

from gradtui.probe.frozen import Freeze, bits
from gradtui.probe.frozen.bits import Bits, BitSample, memory_of, weighted_sum
from gradtui.probe.frozen.freeze_verifier import Verdict
from gradtui.probe.torch_private.host_copy import HostCopy

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.complex64]


def of(tensor: torch.Tensor, *, as_device: bool) -> bytes | int:
    if as_device:
        flat = torch.view_as_real(tensor).view(-1) if tensor.is_complex() else tensor.view(-1)
        return int(weighted_sum(flat).item())
    found = memory_of(tensor)
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize("as_device", [False, True], ids=["memory", "weighted sum"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_two_elements_that_change_places_change_checksum(kind: torch.dtype, as_device: bool) -> None:
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
    # Neither rows nor columns of 64-bit words fit.
    values = torch.zeros(300_001)
    before = of(values, as_device=as_device)
    seen = {before}
    for index, value in ((0, -0.0), (1, 1.0), (131_071, -1.0), (131_072, 2.0), (299_999, 1e-45), (300_000, -0.0)):
        values[index] = value
        seen.add(of(values, as_device=as_device))
    assert len(seen) == 7


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_weighted_sum_misses_no_change_or_exchange(kind: torch.dtype) -> None:
    values = torch.randint(-100, 100, (1 << 12,), generator=torch.Generator().manual_seed(0)).to(kind)
    before = int(weighted_sum(values))
    for one, other in torch.randint(0, len(values), (2_000, 2), generator=torch.Generator().manual_seed(1)).tolist():
        changed = values.clone()
        changed[[one, other]] = values[[other, one]]
        assert (int(weighted_sum(changed)) != before) is bool(values[one] != values[other])
        changed = values.clone()
        changed[one] = -values[one]
        assert (int(weighted_sum(changed)) != before) is bool(values[one] != 0) or kind.is_floating_point


@pytest.mark.parametrize("begin", range(9))
def test_part_of_storage_has_its_weighted_sum(begin: int) -> None:
    storage = torch.arange(100, dtype=torch.uint8)
    part = storage[begin : begin + 70]
    before = int(weighted_sum(part))
    assert before == int(weighted_sum(part.clone())), "wherever it lies"
    for index in range(70):
        storage[begin + index] += 128
        assert int(weighted_sum(part)) != before
        storage[begin + index] -= 128
    storage[begin + 70] += 1
    assert int(weighted_sum(part)) == before


def test_memory_that_cannot_be_read_has_no_checksum() -> None:
    emptied = torch.ones(4)
    emptied.untyped_storage().resize_(0)
    assert memory_of(emptied) is None
    assert memory_of(torch.ones(4, device="meta")) is None
    assert memory_of(torch.ones(4).to_sparse()) is None
    assert memory_of(torch.empty(0)) == b""


def test_reordered_view_has_checksum_of_its_memory() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert memory_of(values.t()) == memory_of(values)
    assert memory_of(values[:, :2]) == memory_of(values[:, :2].clone())


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[HostCopy]:
    """Checksums are taken by a device's arithmetic. The copies to the host, whose `_done` says when they have arrived."""
    copies = unfinished_copies(monkeypatch, bits)
    monkeypatch.setattr(bits, "_digest", lambda tensor: bits.weighted_sum(tensor.view(-1)))
    return copies


def test_small_tensors_of_one_size_are_read_together(device: list[HostCopy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_digest", lambda tensor: tensor.view(-1).view(torch.uint8))
    monkeypatch.setattr(bits, "piece_bytes", lambda device, needed: 4 * 60 * 7)  # seven of them at once
    storage = torch.arange(400, dtype=torch.uint8)
    tensors = {index: torch.full((15,), float(index)) for index in range(20)}
    tensors |= {20: storage[1:61], 21: storage[61:161], 22: torch.ones(5000), 23: torch.ones(3, dtype=torch.bfloat16)}
    before, again = (BitSample(tensors.items()) for _ in range(2))
    tensors[3][14] = -3.0
    tensors[7][[0]] = -7.0
    storage[60], storage[161] = 0, 0
    tensors[22][0] = tensors[23][2] = 0
    # The same bits elsewhere.
    tensors[21] = storage[61:161].clone()
    later = BitSample(tensors.items())
    for each in (before, again, later):
        each.wait()
    assert all(before.compare(again).values())
    assert {key for key, is_same in before.compare(later).items() if not is_same} == {3, 7, 20, 22, 23}


def test_checksums_of_device_are_kept_on_host_only(device: list[HostCopy], monkeypatch: pytest.MonkeyPatch) -> None:
    on_device: list[weakref.ref[torch.Tensor]] = []

    def noted(flat: torch.Tensor) -> torch.Tensor:
        total = weighted_sum(flat)
        on_device.append(weakref.ref(total))
        return total

    monkeypatch.setattr(bits, "weighted_sum", noted)
    tensors = [(index, torch.full((5,), float(index))) for index in range(4)]
    before = BitSample(tensors)
    assert len(on_device) == 4
    assert all(reference() is None for reference in on_device)
    assert [len(copy.tensor()) for copy in device] == [4]
    assert not before.is_there
    before.wait()
    assert before.is_there
    tensors[2][1][3] = -1.0
    later = BitSample(tensors)
    later.wait()
    assert before.compare(later) == {0: True, 1: True, 2: False, 3: True}


def test_device_freeze_is_verified_with_arrived_checksums(device: list[HostCopy]) -> None:
    parameters = [nn.Parameter(torch.ones(6), requires_grad=False) for _ in range(2)]
    watching = Freeze(1, 0, [(f"p{index}", each) for index, each in enumerate(parameters)])
    parameters[1].data[4] = 2.0
    assert watching.verdict() is None
    device[0].wait()
    assert watching.verdict() is None, "of the tensors as they are now nothing has arrived"
    parameters[0].data[4] = 2.0
    device[1].wait()
    assert watching.verdict() == Verdict(2, ("p1",))


def test_checksums_of_different_devices_are_not_compared() -> None:
    before, later = BitSample([(0, torch.ones(3))]), BitSample([(0, torch.ones(3))])
    later._known[0] = Bits((torch.device("cuda", 0),), b"17")
    assert before.compare(later) == {}
