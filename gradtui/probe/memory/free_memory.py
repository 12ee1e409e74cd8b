"""Check whether a device's allocator has free blocks for gradtui's own operations. Training thread.

gradtui never makes the allocator grow: another segment would change what the script reads, and near the memory limit the
allocator could return all its free blocks to the driver, count a failed allocation, or take the memory that the script needs
next. So gradtui uses free blocks, and works in pieces that fit into them. Checked on a simulated device only.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.probe.samplers.device import counter

PIECE_BYTES = 1 << 20
"""Bytes of one operation where nothing else is known. Up to this size the allocator takes blocks from segments of 2 MiB."""
_RESULTS = 64 << 10
"""Free bytes in small blocks that a measurement needs: 512 for each number on the device."""
_MAX_PIECE = 64 << 20
MIN_PIECE = 16 << 10
"""Where no free block holds such a piece twice, nothing is measured."""
_FRESH_S = 0.25
"""Seconds for which the sizes of pieces are used again."""
_ALIKE = 64 << 10
"""The blocks of a device are taken as alike if so few bytes more or less are free, as at the same place of each step."""
_PLACES = 16
"""Entries of `_pieces` at most."""


class _Pieces(NamedTuple):
    """The bytes of a piece that fits into a large block, and of one that fits into a small block; 0 where there is none."""

    large: int
    small: int


_ANY = _Pieces(0, PIECE_BYTES)
_free: dict[int, int] = {}
"""For each CUDA device: the free bytes in its small blocks, in units of `_ALIKE`, at the last reading."""
_pieces: dict[tuple[int, int | None], tuple[float, _Pieces]] = {}
"""For each CUDA device and its free bytes: the time of the last reading of the free blocks, and what fits into them."""


def has_room(devices: Iterable[int]) -> bool:
    """Return whether each of these CUDA devices has room for a measurement. The answer is yes if that is unknown."""
    for device in devices:  # noqa: SIM110 - a generator would be one call more where there is no device
        if not _has_room(device):
            return False
    return True


def devices_with_room(tensors: Iterable[torch.Tensor]) -> dict[torch.device, bool]:
    """Return, for each CUDA device of some tensors, whether it has room for a measurement in pieces."""
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return {device: _has_room(device.index) and piece_bytes(device, 0) > 0 for device in devices}


def piece_bytes(device: torch.device, needed: int) -> int:
    """Return the bytes that one of gradtui's operations may take on a device: 0 if the allocator has no free block.

    `needed`: the bytes that these operations take together. Half of the largest free block, since a result may be as large
    as a piece. The allocator takes a block of more than a mebibyte from large segments, and any other from small ones
    (PyTorch: c10/core/CachingDeviceAllocator.h, kSmallSize). So pieces of large blocks have nearly equal sizes: a small last
    one would need a small block.
    """
    if device.type != "cuda":
        return PIECE_BYTES
    large, small = _free_pieces(device)
    if needed > PIECE_BYTES and large >= 2 * PIECE_BYTES:
        return -(-needed // -(-needed // large))
    return small


def _free_pieces(device: torch.device) -> _Pieces:
    index = device.index or 0
    place = index, _free.get(index)
    known = _pieces.get(place)
    if known is None or monotonic() - known[0] > _FRESH_S:
        if len(_pieces) >= _PLACES:
            _pieces.clear()
        known = _pieces[place] = monotonic(), _pieces_of(index)
    return known[1]


def _has_room(device: int) -> bool:
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(device)
    except RuntimeError:
        # Another allocator, without statistics.
        return True
    # `cudaMallocAsync` has one pool, which the driver keeps (PyTorch: "Using custom memory allocators").
    pool = "all" if torch.cuda.get_allocator_backend() == "cudaMallocAsync" else "small_pool"
    reserved, active = (counter(stats, kind, pool).get("current", 0) for kind in ("reserved", "active"))
    _free[device] = (reserved - active) // _ALIKE
    return reserved - active >= _RESULTS


def _pieces_of(device: int) -> _Pieces:
    try:
        segments = torch.cuda.memory_snapshot()
        stream = torch.cuda.current_stream(device).cuda_stream
    except RuntimeError:
        return _ANY
    free = {"small": 0, "large": 0}
    for segment in segments:
        if segment["device"] == device and segment["stream"] == stream:
            kind = segment["segment_type"]
            blocks = (block["size"] for block in segment["blocks"] if block["state"] == "inactive")
            free[kind] = max(free.get(kind, 0), *blocks, 0)
    large, small = min(free["large"] // 2, _MAX_PIECE), min(free["small"] // 2, PIECE_BYTES)
    return _Pieces(large, small if small >= MIN_PIECE else 0)
