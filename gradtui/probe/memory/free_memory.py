"""Check whether a device has memory left for gradtui's own operations. Training thread. Not yet confirmed on a device.

Near the memory limit an allocation by gradtui could make the caching allocator return all its free blocks to the driver and
count a failed allocation, or take the memory that the script needs next. gradtui allocates small blocks only (at most
`PIECE_BYTES`).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradtui.samplers.device import counter

PIECE_BYTES = 1 << 20
"""Maximum bytes of a gradtui operation. Up to this size the allocator takes blocks from segments of 2 MiB."""
_NEEDED = 4 << 20
_MARGIN = 64 << 20
"""Free bytes that the driver must have before gradtui may make the allocator grow: the script's next segments must fit too."""


def has_room(devices: Iterable[int]) -> bool:
    """Return whether each of these CUDA devices has room for a measurement. The answer is yes if that is unknown."""
    for device in devices:  # noqa: SIM110 - a generator would be one call more where there is no device
        if not _has_room(device):
            return False
    return True


def devices_with_room(tensors: Iterable[torch.Tensor]) -> dict[torch.device, bool]:
    """Return, for each CUDA device of some tensors, whether it has room for a measurement."""
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return {device: has_room((device.index,)) for device in devices}


def _has_room(device: int) -> bool:
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, active = (counter(stats, kind, "small_pool").get("current", 0) for kind in ("reserved", "active"))
        if reserved - active >= _NEEDED:
            return True
        # Takes about 20 µs, and runs only if the allocator has no small blocks left.
        free, total = torch.cuda.mem_get_info(device)
        share = getattr(torch.cuda, "get_per_process_memory_fraction", None)
        allowed = (int(total * share(device)) if share is not None else total) - counter(stats, "reserved").get(
            "current", 0
        )
        return min(free, allowed) >= _MARGIN
    except RuntimeError:
        # Another allocator, without statistics.
        return True
