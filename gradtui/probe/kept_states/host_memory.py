"""Host memory for copies, outside of malloc: what it counts stays what the script itself has allocated.

Small tensors of a CUDA device come to pinned memory of torch's host allocator. Their copies run one after another while the
host continues, and it waits once for all of them; to other memory it waits for each. Larger ones are not worth it: pinning
takes time for each page, as the copy does. Torch keeps pinned memory that was freed for the next copy.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable

import torch

_PIECE = 16 << 20
"""Bytes that are mapped at once. The system gives pages only for what is written."""
_PINNED_PIECE = 4 << 20
"""Bytes that are pinned at once."""
_SMALL = 1 << 20
"""Bytes of the largest tensor that goes to pinned memory."""
_ALIGNMENT = 64
_STRETCH = 64 << 20
"""Bytes of a large tensor that are copied at once, so that it is known how far the copy is."""


_PIECES: weakref.WeakKeyDictionary[mmap.mmap, range] = weakref.WeakKeyDictionary()
"""The addresses of each living piece that is not pinned. Torch made the pinned ones, as it makes those of the script."""


def is_copy(tensor: torch.Tensor) -> bool:
    """Return whether the memory of this CPU tensor was handed out here: gradtui keeps it, not the script."""
    address = tensor.data_ptr()
    return any(address in addresses for addresses in _PIECES.values())


class HostMemory:
    """Hands out memory that is returned to the system when the last tensor in its piece ends.

    Args:
        copied: receives the number of bytes after each copy.
        pinnable: the bytes that may be pinned.
    """

    def __init__(self, copied: Callable[[int], None] | None = None, pinnable: int = 0) -> None:
        self._mapped, self._pinned = _Piece(), _Piece()
        self._copied, self._pinnable = copied, pinnable
        self._devices: set[torch.device] = set()
        """From which copies may be under way."""
        self.pinned = 0
        """The bytes that are pinned."""
        self.nbytes = 0
        """The bytes of all copies."""
        self.sources: set[int] = set()
        """The addresses of the memory of which there are copies."""

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a strided tensor, with its strides if it is dense. Its values are there after `wait`."""
        nbytes = tensor.numel() * tensor.element_size()
        tensor = tensor.detach()
        if not nbytes:
            return tensor.cpu()
        self.nbytes += nbytes
        self.sources.add(tensor.untyped_storage().data_ptr())
        is_pinned = tensor.is_cuda and nbytes <= _SMALL and self._has_pinned(nbytes)
        if not is_pinned and not self._mapped.has_room(nbytes):
            self._mapped = _Piece(_mapped(max(nbytes, _PIECE)))
        flat = (self._pinned if is_pinned else self._mapped).take(nbytes).view(tensor.dtype)
        made = flat.as_strided(tensor.shape, tensor.stride() if tensor.is_contiguous() else _strides(tensor))
        if is_pinned:
            made.copy_(tensor, non_blocking=True)
            self._devices.add(tensor.device)
            if self._copied is not None:
                self._copied(nbytes)
        elif self._copied is None:
            made.copy_(tensor)
        else:
            self._copy(made, tensor, self._copied)
        return made

    def wait(self) -> None:
        """Wait until all copies are there."""
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        self._devices.clear()

    def _has_pinned(self, nbytes: int) -> bool:
        """Return whether there is room in pinned memory, if need be in a further piece."""
        if not self._pinned.has_room(nbytes) and self.pinned + _PINNED_PIECE <= self._pinnable:
            try:
                self._pinned = _Piece(torch.empty(_PINNED_PIECE, dtype=torch.uint8, device="cpu", pin_memory=True))
                self.pinned += _PINNED_PIECE
            except RuntimeError:
                # The system limits it, or has no more of it.
                self._pinnable = 0
        return self._pinned.has_room(nbytes)

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


class _Piece:
    """A piece of memory, of which tensors take one part after another."""

    def __init__(self, memory: torch.Tensor | None = None) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8, device="cpu") if memory is None else memory
        self._used = 0

    def has_room(self, nbytes: int) -> bool:
        """Return whether so many bytes are left."""
        return self._used + nbytes <= self._memory.numel()

    def take(self, nbytes: int) -> torch.Tensor:
        """Return the next bytes."""
        offset = self._used
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._memory[offset : offset + nbytes]


def _mapped(nbytes: int) -> torch.Tensor:
    piece = mmap.mmap(-1, nbytes)
    memory = torch.frombuffer(piece, dtype=torch.uint8)
    _PIECES[piece] = range(memory.data_ptr(), memory.data_ptr() + nbytes)
    return memory


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a dense copy of a tensor that is not contiguous.

    If they are those of the tensor, a device needs no memory of its own for the copy.
    """
    # Those of a tensor that is not dense (a part of another one) become those of a contiguous one, as `empty_like` says.
    return torch.empty_like(tensor, device="meta").stride()
