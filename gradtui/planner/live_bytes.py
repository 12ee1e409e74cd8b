"""Count the bytes of the storages that are alive while a step is repeated on the device "meta". Any thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradtui.probe.torch_private.operation_mode import OperationMode
from gradtui.protocol.step_peaks import whole_blocks


class _Counted(weakref.ref[Any]):
    """A weak reference to a storage that is alive, with its key and its bytes."""

    __slots__ = ("is_final", "key", "nbytes")
    key: int
    nbytes: int
    is_final: bool


class LiveBytes(OperationMode):
    """Counts storages from when `add` gets a tensor of them until they are freed; as a mode, those of all results.

    Args:
        block: each storage counts as a multiple of these bytes.
    """

    def __init__(self, block: int = 1) -> None:
        super().__init__()
        self._block = block
        self.now = 0
        """Bytes that are alive."""
        self.peak = 0
        """The most bytes that were alive since the start, or since `restart`."""
        self.place = -1
        """Where the step is now."""
        self.peaks: dict[int, int] = {}
        """The most bytes that were alive at each place, since the start or since `restart`."""
        self.find_place: Callable[[int], int] = lambda place: place
        """Returns the place of the operation that runs, given that of the one before; the mode calls it."""
        self._alive: dict[int, _Counted] = {}

    def add(self, tensor: torch.Tensor, nbytes: int | None = None) -> None:
        """Count the storage of a tensor once. The first `nbytes` that is given replaces its size."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the identity of a storage
        counted = self._alive.get(key)
        if counted is None:
            counted = self._alive[key] = _Counted(storage, self._freed)
            counted.key, counted.nbytes, counted.is_final = key, 0, False
            self._resize(counted, storage.nbytes() if nbytes is None else nbytes)
        elif nbytes is not None and not counted.is_final:
            self._resize(counted, nbytes)
        counted.is_final |= nbytes is not None

    def _resize(self, counted: _Counted, nbytes: int) -> None:
        nbytes = whole_blocks(nbytes, self._block)
        self.now += nbytes - counted.nbytes
        counted.nbytes = nbytes
        self.peak = max(self.peak, self.now)
        if self.now > self.peaks.get(self.place, -1):
            self.peaks[self.place] = self.now

    def leave_out(self, tensor: torch.Tensor) -> None:
        """Never count the storage of a tensor."""
        self.add(tensor, 0)

    def restart(self) -> int:
        """Begin other peaks. Return the last one."""
        peak, self.peak, self.peaks = self.peak, self.now, {}
        return peak

    def _freed(self, counted: Any) -> None:
        if self._alive.pop(counted.key, None) is not None:
            self.now -= counted.nbytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count its results."""
        self.place = self.find_place(self.place)
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, torch.Tensor):
                self.add(each)
        return result
