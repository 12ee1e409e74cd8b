"""What we compute beside the script near the limit of a device's memory: in small pieces, or not at all."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradtui.probe.frozen import DriftDetector, Freeze, bits
from gradtui.probe.frozen.bits import BitSample, weighted_sum
from gradtui.probe.frozen.freeze_verifier import Verdict
from gradtui.probe.gradients import grad_norm_collector, grad_norms, grad_stats, nonfinite
from gradtui.probe.memory import free_memory
from gradtui.probe.memory.free_memory import PIECE_BYTES, has_room, piece_bytes
from gradtui.protocol.commands import PauseAtBadStep
from gradtui.protocol.events import GradientFiguresMeasured, NonFiniteFound, Progress

MIB = 1 << 20


@pytest.fixture(autouse=True)
def default_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the allocator, which torch's CPU build cannot (its ``torch._C`` has no ``_cuda_getAllocatorBackend``)."""
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")


class Largest(TorchDispatchMode):
    """Notes the largest new result of an operation, and the largest input of one that copies its input on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.known |= {each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        if "count_nonzero" in str(func):
            self.elements = max(self.elements, args[0].numel())
        elif isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in self.known:
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_no_operation_takes_more_than_a_piece(dtype: torch.dtype) -> None:
    count = 3 * MIB // dtype.itemsize + 5
    parameter = nn.Parameter(torch.ones(count, dtype=dtype))
    parameter.grad = torch.zeros(count, dtype=dtype)
    parameter.grad[: count // 2] = 2.0
    parameter.grad[7:10] = torch.inf
    with Largest() as seen, torch.no_grad():
        nonzero, not_finite = grad_stats._numbers(parameter)[:2]
    assert (int(nonzero), int(not_finite)) == (count // 2, 3)
    assert seen.elements * dtype.itemsize <= PIECE_BYTES


def small_blocks(*, reserved: int, active: int) -> dict[str, Any]:
    return {
        "reserved_bytes": {"small_pool": {"current": reserved}},
        "active_bytes": {"small_pool": {"current": active}},
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (small_blocks(reserved=4 * MIB, active=3 * MIB), True),
        # The driver may have plenty: the allocator must not grow for gradtui.
        (small_blocks(reserved=4 * MIB, active=4 * MIB), False),
        (small_blocks(reserved=0, active=0), False),
    ],
)
def test_there_is_room_where_small_blocks_are_free(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: found)
    assert has_room([0]) is expected
    assert has_room([])


def segment(kind: str, *free: int, stream: int = 0, device: int = 0) -> dict[str, Any]:
    blocks = [{"size": size, "state": "inactive"} for size in free]
    used = [{"size": 90 * MIB, "state": state} for state in ("active_allocated", "active_awaiting_free")]
    return {"device": device, "stream": stream, "segment_type": kind, "blocks": used + blocks}


@pytest.mark.parametrize(
    ("segments", "needed", "expected"),
    [
        ([segment("large", 30 * MIB, 50 * MIB), segment("small", MIB)], 25 * MIB, 25 * MIB),
        # Two of equal size: of 25 and of one mebibyte the second one would need a small block.
        ([segment("large", 50 * MIB), segment("small", MIB)], 26 * MIB, 13 * MIB),
        # It fits into the large block, but the allocator would take a small one.
        ([segment("large", 50 * MIB), segment("small", MIB // 4)], MIB // 2, MIB // 8),
        ([segment("large", 900 * MIB)], 640 * MIB, 64 * MIB),
        # Half of it is a small request, for which there is no small block.
        ([segment("large", 2 * MIB), segment("small", MIB // 4)], 8 * MIB, MIB // 8),
        ([segment("small", 2 * MIB)], 8 * MIB, MIB),
        ([segment("small", 2 * MIB, stream=7), segment("large", 50 * MIB, device=1)], 8 * MIB, 0),
        ([segment("small", 4096)], 4096, 0),
        ([segment("large")], 8 * MIB, 0),
        ([], 8 * MIB, 0),
    ],
)
def test_a_piece_fits_into_a_free_block(
    monkeypatch: pytest.MonkeyPatch, segments: list[dict[str, Any]], needed: int, expected: int
) -> None:
    monkeypatch.setattr(free_memory, "_pieces", {})
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    assert piece_bytes(torch.device("cuda:0"), needed) == expected
    assert piece_bytes(torch.device("cpu"), needed) == PIECE_BYTES


def test_pieces_belong_to_recurring_free_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    device, looks = torch.device("cuda:0"), []
    monkeypatch.setattr(free_memory, "_pieces", {})
    monkeypatch.setattr(free_memory, "_free", {})
    monkeypatch.setattr(free_memory, "_pieces_of", lambda index: looks.append(index) or (0, len(looks) * MIB))
    pieces = []
    for active in (MIB + 8192, 2 * MIB, MIB + 9216, 2 * MIB):
        monkeypatch.setattr(
            torch.cuda, "memory_stats_as_nested_dict", lambda _, to=active: small_blocks(reserved=4 * MIB, active=to)
        )
        assert has_room([0])
        pieces += [piece_bytes(device, 0), piece_bytes(device, 0)]
    assert pieces == [MIB, MIB, 2 * MIB, 2 * MIB] * 2


def test_an_allocator_without_statistics_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(device: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuses)
    assert has_room([0])


@pytest.mark.usefixtures("as_on_a_device")
def test_nothing_is_measured_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_norm_collector, "has_room", lambda devices: False)
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert seen.totals() == []
    assert [step for step, _ in seen.losses()] == [1, 2, 3, 4, 5]
    assert max((event.readings_dropped, event.readings_without_room) for event in seen.all(Progress)) == (5, 5)
    assert ["no memory left" in entry.text for entry in seen.state.log if "not measured" in entry.text] == [True]


def test_no_operation_of_checksum_takes_more_than_piece() -> None:
    values = torch.ones(3 * MIB // 4 + 5)
    with Largest() as seen:
        weighted_sum(values)
    # Besides the sums of rows and columns, and their weights, nothing.
    assert 0 < seen.elements <= 8 * math.isqrt(values.numel())


@pytest.mark.fake_cuda
def test_tensors_without_room_freeze_without_checksum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = nn.Parameter(torch.ones(6, device="cuda"), requires_grad=False)
    room = {frozen.device: True}
    monkeypatch.setattr(bits, "devices_with_room", lambda tensors: (list(tensors), room)[1])
    assert "p" in BitSample([("p", frozen)])
    room[frozen.device] = False
    assert "p" not in BitSample([("p", frozen)])
    watching, values = Freeze(1, 0, [("p", frozen)]), DriftDetector()
    for _ in range(2):
        values.on_step_post(1, None, [(0, frozen)], frozenset(), {})
    assert [known.bits for known in values._known.values()] == [None]
    assert watching.verdict() == Verdict(1, ())
    frozen.detach().add_(1)
    assert watching.verdict() == Verdict(1, ("p",)), "by its version counter"


def test_large_gradients_take_no_scratch_for_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grad_norms, "_PIECE", 30)
    together: list[list[int]] = []

    def norms(tensors: list[torch.Tensor], dtype: torch.dtype | None) -> list[torch.Tensor]:
        together.append([tensor.numel() for tensor in tensors])
        return [tensor.norm() for tensor in tensors]

    monkeypatch.setattr(grad_norms, "multi_tensor_norms", norms)
    monkeypatch.setattr(grad_norms, "norm_of", torch.linalg.vector_norm)
    sizes = [10, 20, 30, 31, 200, 5, 60, 60, 61]
    indices, tensors, found = grad_norms._norms([(size, torch.ones(size)) for size in sizes], set())
    assert sorted(indices) == sorted(sizes)
    assert [tensor.numel() for tensor in tensors] == indices
    assert [norm.item() for group in found for norm in group] == pytest.approx([math.sqrt(size) for size in indices])
    assert together == [[10, 20, 30, 5]]


@pytest.mark.parametrize("room", [True, False])
def test_nothing_is_measured_after_step_takes_room(monkeypatch: pytest.MonkeyPatch, room: bool) -> None:
    for module in (grad_stats, nonfinite):
        monkeypatch.setattr(module, "devices_with_room", lambda tensors: {torch.device("cpu"): room})
    model = nn.Linear(4, 2)
    with watched() as seen:
        seen.submit(PauseAtBadStep)
        seen.commands.close()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            if step == 1:
                optimizer.param_groups[0]["lr"] = math.inf
            optimizer.step()
    figures = [each for event in seen.all(GradientFiguresMeasured) for each in event.figures]
    assert figures
    assert all((each.update_ratio is not None) is room for each in figures if math.isfinite(each.max_abs))
    # What the weights have become is seen where they were measured.
    assert bool(seen.all(NonFiniteFound)) is room
