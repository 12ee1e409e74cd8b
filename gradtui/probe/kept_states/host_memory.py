"""Host memory for copies, outside of malloc: what it counts stays what the script itself has allocated."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable

import torch

_PIECE = 16 << 20
"""Bytes that are mapped at once. The system gives pages only for what is written."""
_ALIGNMENT = 64
_STRETCH = 64 << 20
"""Bytes of a large tensor that are copied at once, so that it is known how far the copy is."""


_PIECES: weakref.WeakKeyDictionary[mmap.mmap, range] = weakref.WeakKeyDictionary()
"""The addresses of each living piece."""


def is_copy(tensor: torch.Tensor) -> bool:
    """Return whether the memory of this CPU tensor was handed out here: gradtui keeps it, not the script."""
    address = tensor.data_ptr()
    return any(address in addresses for addresses in _PIECES.values())


class HostMemory:
    """Hands out memory that is returned to the system when the last tensor in its piece ends.

    Args:
        copied: receives the number of bytes after each copy.
    """

    def __init__(self, copied: Callable[[int], None] | None = None) -> None:
        self._piece: mmap.mmap | None = None
        self._used = 0
        self._copied = copied

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a strided tensor, with its strides if it is dense. From a device this waits for the copy."""
        nbytes = tensor.numel() * tensor.element_size()
        tensor = tensor.detach()
        if not nbytes:
            return tensor.cpu()
        piece, offset = self._taken(nbytes)
        flat = torch.frombuffer(piece, dtype=torch.uint8, count=nbytes, offset=offset).view(tensor.dtype)
        made = flat.as_strided(tensor.shape, tensor.stride() if tensor.is_contiguous() else _strides(tensor))
        with torch.no_grad():
            if self._copied is None:
                made.copy_(tensor)
            else:
                self._copy(made, tensor, self._copied)
        return made

    @staticmethod
    def _copy(made: torch.Tensor, tensor: torch.Tensor, copied: Callable[[int], None]) -> None:
        size = tensor.element_size()
        if made.nbytes <= _STRETCH or not tensor.is_contiguous():
            made.copy_(tensor)
            copied(made.nbytes)
            return
        for to, source in zip(made.view(-1).split(_STRETCH // size), tensor.view(-1).split(_STRETCH // size)):
            to.copy_(source)
            copied(to.nbytes)

    def _taken(self, nbytes: int) -> tuple[mmap.mmap, int]:
        if self._piece is None or self._used + nbytes > len(self._piece):
            self._piece, self._used = mmap.mmap(-1, max(nbytes, _PIECE)), 0
            address = torch.frombuffer(self._piece, dtype=torch.uint8).data_ptr()
            _PIECES[self._piece] = range(address, address + len(self._piece))
        offset = self._used
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._piece, offset


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a dense copy of a tensor that is not contiguous.

    If they are those of the tensor, a device needs no memory of its own for the copy.
    """
    # Those of a tensor that is not dense (a part of another one) become those of a contiguous one, as `empty_like` says.
    return torch.empty_like(tensor, device="meta").stride()
