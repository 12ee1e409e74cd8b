"""What we compute beside the script near the limit of a device's memory: in small pieces, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from watched import watched

from gradtui.probe import gradient_statistics, norm_reader
from gradtui.probe.device_room import PIECE_BYTES, has_room
from gradtui.protocol.events import GradientsMeasured, Progress

MIB = 1 << 20


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
        nonzero, not_finite = gradient_statistics._numbers(parameter)[:2]
    assert (int(nonzero), int(not_finite)) == (count // 2, 3)
    assert seen.elements * dtype.itemsize <= PIECE_BYTES


def stats(*, reserved: int, active: int, reserved_small: int = 0, active_small: int = 0) -> dict[str, Any]:
    def pools(whole: int, small: int) -> dict[str, Any]:
        return {"all": {"current": whole}, "small_pool": {"current": small}}

    return {"reserved_bytes": pools(reserved, reserved_small), "active_bytes": pools(active, active_small)}


@pytest.mark.parametrize(
    ("found", "free", "fraction", "expected"),
    [
        (stats(reserved=900 * MIB, active=900 * MIB), 500 * MIB, 1.0, True),
        (stats(reserved=900 * MIB, active=900 * MIB), 10 * MIB, 1.0, False),
        # A limit of the script's own: 930 of 1,000 MiB may be used.
        (stats(reserved=900 * MIB, active=900 * MIB), 500 * MIB, 0.93, False),
        # What is cached for small blocks is enough, whatever the driver has left.
        (stats(reserved=990 * MIB, active=900 * MIB, reserved_small=20 * MIB, active_small=10 * MIB), 0, 1.0, True),
        (stats(reserved=990 * MIB, active=900 * MIB, reserved_small=20 * MIB, active_small=19 * MIB), 0, 1.0, False),
    ],
)
def test_there_is_room_where_small_blocks_are_cached_or_the_driver_has_plenty(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], free: int, fraction: float, expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: found)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1000 * MIB))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction, raising=False)
    assert has_room([0]) is expected
    assert has_room([])


def test_an_allocator_without_statistics_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(device: int) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuses)
    assert has_room([0])


def test_without_room_nothing_is_measured_and_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_reader, "has_room", lambda devices: False)
    model = nn.Linear(4, 2)
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert [event for event in seen.all(GradientsMeasured) if event.total is not None] == []
    assert max(event.readings_dropped for event in seen.all(Progress)) == 5
