"""What stands behind torch's own hooks on saved tensors, by names that torch does not promise to keep: `save_on_cpu`.

A hooked `SavedTensor` holds in `data` what its pack hook has returned; it is looked at, and no hook is run. Where a name is
missing nothing is said. Any thread.
"""

from __future__ import annotations

from typing import Any

import torch

_OFFLOADING = "save_on_cpu."


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
