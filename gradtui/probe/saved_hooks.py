"""What stands behind torch's own hooks on saved tensors, by names that torch does not promise to keep: `save_on_cpu`.

A hooked `SavedTensor` holds in `data` what its pack hook has returned; it is looked at, and no hook is run. Where a name is
missing nothing is said. Any thread.
"""

from __future__ import annotations

from typing import Any

import torch

_OFFLOADING = "save_on_cpu."

_SMALLER = {
    large: torch.zeros((), dtype=small, device="cpu")
    for large, small in (
        (torch.float64, torch.float16), (torch.int64, torch.int8), (torch.complex128, torch.complex64)
    )
}  # fmt: skip


def is_number(tensor: torch.Tensor) -> bool:
    """Whether this is a Python number of the script's that autograd has made a tensor of, as in `x * 0.5`.

    Those few bytes are never shown to hooks on saved tensors. A number gives way to the type of any tensor, which one
    that the script has made as a tensor does not (torch's rules of type promotion).
    """
    smaller = _SMALLER.get(tensor.dtype) if tensor.dim() == 0 and tensor.device.type == "cpu" else None
    return smaller is not None and torch.result_type(tensor, smaller) != tensor.dtype


def copy_on_host(saved: Any) -> torch.Tensor | None:
    """The copy that `torch.autograd.graph.save_on_cpu` keeps instead of a saved tensor; None if that is not its hook.

    Its pack hook returns (the tensor's device, a copy in the host's memory). For a tensor of the CPU that is a copy with
    `pin_memory`, else the tensor itself.
    """
    name = getattr(getattr(saved, "unpack_hook", None), "__qualname__", "")
    if not name.startswith(_OFFLOADING):
        return None
    packed = getattr(saved, "data", None)
    copy = packed[-1] if isinstance(packed, tuple) and packed else None
    return copy if isinstance(copy, torch.Tensor) else None
