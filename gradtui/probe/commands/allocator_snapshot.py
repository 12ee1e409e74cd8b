"""Save the CUDA allocator's snapshot for PyTorch's memory viewer. Runs on the training thread, at a step boundary.

Not yet confirmed on a device.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch

from gradtui.atomic_file import WriteFile
from gradtui.probe.runtime import CommandRefused, CommandResult
from gradtui.probe.torch_private.cuda import allocator_snapshot

_NO_HISTORY = (
    "it shows what is allocated now, without history or stacks, since the script records none "
    "(torch.cuda.memory._record_memory_history)"
)


def save(write_file: WriteFile | None) -> CommandResult:
    """Write the snapshot. The script decides whether the allocator records its history; gradtui does not change that.

    Raises:
        CommandRefused: there is no snapshot, or it cannot be written.
    """
    if not torch.cuda.is_initialized():
        raise CommandRefused("only the CUDA allocator has one, and this run does not use CUDA")
    if write_file is None:
        raise CommandRefused("this run has no place for files")
    snapshot = allocator_snapshot()
    if snapshot is None:
        raise CommandRefused("this version of PyTorch takes none")
    try:
        path = write_file("allocator", ".pickle", lambda file: pickle.dump(snapshot, file))
    except OSError as error:
        raise CommandRefused(f"it could not be written: {error.strerror or error}") from None
    missing = "" if _has_history(snapshot) else f"; {_NO_HISTORY}"
    return CommandResult(
        f"wrote a snapshot of the allocator to {path}, for https://pytorch.org/memory_viz{missing}", ()
    )


def _has_history(snapshot: dict[str, Any]) -> bool:
    """Return whether any device's trace has an entry: `_record_memory_history` is on, or was."""
    return any(snapshot.get("device_traces") or ())
