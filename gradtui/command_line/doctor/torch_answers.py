"""What torch says of itself and its devices, in a process of its own (`child.py`).

No device gets a context, so nothing is allocated on it: `cudaGetDeviceCount` calls `cuInit`, which makes none.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from gradtui.command_line.doctor.child import tell


def answers() -> Iterator[Mapping[str, Any]]:
    """Yield the build, the devices that NVML counts, and those that the CUDA runtime finds."""
    try:
        import torch
    except ModuleNotFoundError as missing:
        yield {"error": str(missing), "is_installed": missing.name != "torch"}
        return
    except BaseException as error:  # noqa: BLE001 - a broken installation may raise anything
        yield {"error": f"{type(error).__name__}: {error}", "is_installed": True}
        return
    yield {
        "version": torch.__version__,
        "path": os.path.dirname(torch.__file__ or ""),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "is_debug": bool(torch.version.debug),
        "reads_saved": _reads_saved(),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield {"counted": torch.cuda.device_count()}
        available = torch.cuda.is_available()
        yield {
            "available": available,
            "warning": str(caught[-1].message) if caught else None,
            "architectures": torch.cuda.get_arch_list(),
            "mps": torch.backends.mps.is_available(),
            "xpu": hasattr(torch, "xpu") and torch.xpu.is_available(),
        }


def _reads_saved() -> bool | None:
    """Return whether the probe can read what autograd keeps; None if that is not known."""
    try:
        from gradtui.probe.torch_private.unshown_tensors import ARE_SHOWN
    except Exception:  # noqa: BLE001 - another torch than the probe knows
        return None
    return ARE_SHOWN


def main() -> None:
    """Tell the process that asks."""
    tell(answers())
