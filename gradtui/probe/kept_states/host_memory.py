"""Host memory for copies, outside of malloc: what it counts stays what the script itself has allocated."""

from __future__ import annotations

import mmap

import torch

_PIECE = 16 << 20
"""Bytes that are mapped at once. The system gives pages only for what is written."""
_ALIGNMENT = 64


class HostMemory:
    """Hands out memory that is returned to the system when the last tensor in its piece ends."""

    def __init__(self) -> None:
        self._piece: mmap.mmap | None = None
        self._used = 0

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous copy of a strided tensor. From a device this waits for the copy."""
        nbytes = tensor.numel() * tensor.element_size()
        if not nbytes:
            return tensor.detach().cpu()
        piece, offset = self._taken(nbytes)
        made = torch.frombuffer(piece, dtype=torch.uint8, count=nbytes, offset=offset).view(tensor.dtype)
        made = made.view(tensor.shape)
        with torch.no_grad():
            made.copy_(tensor.detach())
        return made

    def _taken(self, nbytes: int) -> tuple[mmap.mmap, int]:
        if self._piece is None or self._used + nbytes > len(self._piece):
            self._piece, self._used = mmap.mmap(-1, max(nbytes, _PIECE)), 0
        offset = self._used
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._piece, offset
