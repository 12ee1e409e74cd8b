"""Compute checksums of all bits of tensors, in order. Training thread.

On the CPU this is SHA-256 of the memory, which detects any change. On a device it is a weighted sum of the 32-bit words. It
detects any change of one word, and an exchange of two with a probability of about 1 - 2**-31.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable
from typing import Generic, TypeVar

import torch
from torch import nn

from gradtui.probe.memory import PIECE_BYTES, devices_with_room, of_this_process
from gradtui.probe.torch_private.cuda_captures import is_capturing
from gradtui.probe.torch_private.host_copy import HostCopy

_PIECE = PIECE_BYTES // 8
"""Words that are multiplied at once, as int64."""
_Key = TypeVar("_Key")
_PLAIN = (torch.Tensor, nn.Parameter)

Checksum = bytes | torch.Tensor
"""A digest, or an int64 scalar on a device."""


class ChecksumSample(Generic[_Key]):
    """The checksums of tensors at one moment, by any key. Checksums of device tensors arrive on the host later.

    On a device that lacks memory for the computation, tensors have no checksum.
    """

    def __init__(self, tensors: Iterable[tuple[_Key, torch.Tensor]]) -> None:
        self._known: dict[_Key, tuple[torch.device, bytes | int]] = {}
        """Checksums on the host."""
        pairs = list(tensors)
        room = devices_with_room(tensor for _, tensor in pairs)
        pairs = [(key, tensor) for key, tensor in pairs if room.get(tensor.device, True)]
        with of_this_process.apart(device.index for device in room):
            self._under_way = self._take(pairs)
        self._keys = {*self._known, *(key for _, keys, _ in self._under_way for key in keys)}

    def _take(self, pairs: list[tuple[_Key, torch.Tensor]]) -> list[tuple[torch.device, list[_Key], HostCopy]]:
        checksums = Checksums()
        there: dict[torch.device, tuple[list[_Key], list[torch.Tensor]]] = {}
        for key, tensor in pairs:
            found = checksums.of(tensor)
            if isinstance(found, bytes):
                self._known[key] = tensor.device, found
            elif found is not None:
                keys, numbers = there.setdefault(tensor.device, ([], []))
                keys.append(key)
                numbers.append(found)
        return [(device, keys, HostCopy(torch.stack(sums))) for device, (keys, sums) in there.items()]

    def __contains__(self, key: _Key) -> bool:
        return key in self._keys

    @property
    def is_there(self) -> bool:
        """Whether all checksums are on the host."""
        return all(copy.is_there for *_, copy in self._under_way)

    def wait(self) -> None:
        """Wait for the device, since the user requested the result."""
        for *_, copy in self._under_way:
            copy.wait()

    def compare(self, later: ChecksumSample[_Key]) -> dict[_Key, bool]:
        """Return whether each checksum is the same in `later`. Both must be on the host.

        Tensors that are on another device by then cannot be compared and are left out.
        """
        before, now = self._arrived(), later._arrived()
        return {
            key: before[key][1] == checksum
            for key, (device, checksum) in now.items()
            if key in before and before[key][0] == device
        }

    def _arrived(self) -> dict[_Key, tuple[torch.device, bytes | int]]:
        while self._under_way:
            device, keys, copy = self._under_way.pop()
            self._known.update((key, (device, checksum)) for key, checksum in zip(keys, copy.values()))
        return self._known


class Checksums:
    """Computes the checksums of many tensors in turn. The buffers this needs on a device live as long as this object."""

    def __init__(self) -> None:
        self._weights: dict[torch.device, torch.Tensor] = {}

    def of(self, tensor: torch.Tensor) -> Checksum | None:
        """Return the checksum; None for a layout whose bits cannot be read, and while a CUDA graph is captured."""
        if tensor.is_meta or (tensor.is_cuda and is_capturing()):
            return None
        try:
            if type(tensor) in _PLAIN and tensor.is_cpu and tensor.is_contiguous():
                return _digest(tensor)
            with torch.no_grad():
                return self._of_any(tensor.detach())
        except (RuntimeError, NotImplementedError, TypeError):
            return None

    def _of_any(self, data: torch.Tensor) -> Checksum | None:
        data = torch.view_as_real(data.resolve_conj()) if data.is_complex() else data
        if not data.is_contiguous():
            data = data.permute(sorted(range(data.dim()), key=data.stride, reverse=True)).contiguous()
        return _digest(data) if type(data) in _PLAIN and data.is_cpu else self._weighted(data.view(-1))

    def _weighted(self, flat: torch.Tensor) -> torch.Tensor:
        offset = flat.storage_offset() * flat.element_size()
        kind = torch.int32 if flat.nbytes % 4 == 0 and offset % 4 == 0 else torch.uint8
        weights = self._weights.get(flat.device)
        if weights is None:
            weights = self._weights[flat.device] = _weights(flat.device)
        total = torch.zeros((), dtype=torch.int64, device=flat.device)
        for piece in torch.split(flat.view(kind), _PIECE):
            # Odd factors, so that no word is multiplied by zero; int64 wraps around.
            total = total * _FACTOR + (piece.to(torch.int64) * weights[: piece.numel()]).sum()
        return total


_FACTOR = 6364136223846793005


def _weights(device: torch.device) -> torch.Tensor:
    """Return odd pseudorandom numbers, the same ones every time."""
    weights = torch.arange(1, _PIECE + 1, dtype=torch.int64, device=device) * _FACTOR
    weights = (weights ^ (weights >> 29)) * -4658895280553007687
    return (weights ^ (weights >> 32)) | 1


def _digest(tensor: torch.Tensor) -> bytes | None:
    size = tensor.nbytes
    if not size:
        return b""
    # A script may have freed the memory (`resize_(0)` of the storage).
    if tensor.storage_offset() * tensor.element_size() + size > tensor.untyped_storage().nbytes():
        return None
    # No torch operation: there may be thousands of tensors.
    return hashlib.sha256((ctypes.c_char * size).from_address(tensor.data_ptr())).digest()
