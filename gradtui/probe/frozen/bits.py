"""Sample the bits of tensors: a checksum of all of them, or a few elements. Training thread.

On the CPU the checksum is SHA-256 of the memory, which detects any change. On a device it is a weighted sum of the sums of the
rows and columns of its 64-bit words, laid out as a matrix (of several for a large tensor). It detects any change of one word,
and an exchange of two with a probability of about 1 - 2**-31. A matrix takes two reductions, which copy nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Generic, TypeVar

import torch
from torch import nn

from gradtui.named_tuple import NamedTuple
from gradtui.probe.memory import MIN_PIECE, devices_with_room, of_this_process, piece_bytes
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.probe.torch_private.host_copy import HostCopy

_ELEMENTS = 64
"""Elements per tensor in a sample of a few."""
_TURN = 2654435769
"""2**32 divided by the golden ratio. The fractions of its multiples spread evenly over an interval, wherever they stop."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_JOINED = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64})
"""Types of elements that `torch.cat` joins on any device. The others are read as integers."""
_FACTOR = 6364136223846793005
"""An odd number: no word that is multiplied by it is lost."""
_ROWS = 512
"""Most rows of a matrix. To sum the columns of more rows torch takes a buffer of twice the matrix on a CUDA device."""
_MATRIX = 32 << 20
"""Most bytes of a matrix."""
_SMALL = 16 << 10
"""Most bytes of a tensor that is read together with others of its size, since there may be thousands."""
_NEEDED = 256 << 10
"""Bytes of the largest operation on the sums of such a matrix."""
_Key = TypeVar("_Key")
_PLAIN = (torch.Tensor, nn.Parameter)


class Bits(NamedTuple):
    """The checksum of a tensor or a few of its elements, on the host."""

    kind: tuple[object, ...]
    """The tensor's device and what was read. Bits of different kinds cannot be compared."""
    value: bytes


class BitSample(Generic[_Key]):
    """The checksums of tensors at one moment, by any key; with `few`, a few elements of each instead.

    Bits that are read on a device arrive on the host later. On a device that lacks memory for this, tensors have no bits.
    Which elements the few are depends on `turn` and on the number of elements: over many turns they are all.
    """

    def __init__(self, tensors: Iterable[tuple[_Key, torch.Tensor]], *, few: bool = False, turn: int = 0) -> None:
        self._known: dict[_Key, Bits] = {}
        """Bits on the host."""
        read = partial(few_elements, turn=turn) if few else memory_of
        pairs, weights = list(tensors), Weights()
        on_device = [tensor for _, tensor in pairs if tensor.is_cuda]
        room = devices_with_room(on_device) if on_device else {}
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[list[_Key], torch.Tensor]]] = {}
        small: dict[tuple[torch.device, int], list[tuple[_Key, torch.Tensor]]] = {}
        """By device and bytes."""
        apart = of_this_process.apart(device.index for device in room) if room else nullcontext()
        with apart, torch.no_grad():
            for key, tensor in pairs:
                is_read = room.get(tensor.device, True) and (few or not tensor.is_cuda or _has_room(tensor))
                found = read(tensor) if is_read else None
                if isinstance(found, bytes):
                    self._known[key] = Bits((tensor.device,), found)
                elif found is not None and not few and _is_small(found):
                    small.setdefault((found.device, found.nbytes), []).append((key, found))
                elif found is not None and (few or (found := _sum_or_none(found, weights)) is not None):
                    groups.setdefault((found.device, found.dtype), []).append(([key], found))
            for alike in small.values():
                groups.setdefault((alike[0][1].device, torch.int64), []).extend(_sums_of_small(alike, weights))
            self._under_way = [
                (
                    kind,
                    [(key, found.numel() // len(keys)) for keys, found in group for key in keys],
                    HostCopy(torch.cat([found for _, found in group])),
                )
                for kind, group in groups.items()
            ]
        self._keys = {*self._known, *(key for group in groups.values() for keys, _ in group for key in keys)}

    def __contains__(self, key: _Key) -> bool:
        return key in self._keys

    @property
    def is_there(self) -> bool:
        """Whether all bits are on the host."""
        return all(copy.is_there for *_, copy in self._under_way)

    def wait(self) -> None:
        """Wait for the device, since the user requested the result."""
        for *_, copy in self._under_way:
            copy.wait()

    def bits(self) -> dict[_Key, Bits]:
        """Return the bits by key. Call it only once they are on the host."""
        while self._under_way:
            kind, keys, copy = self._under_way.pop()
            values, begin = copy.tensor(), 0
            memory = ctypes.string_at(values.data_ptr(), values.nbytes)
            for key, count in keys:
                end = begin + count * values.element_size()
                self._known[key] = Bits((*kind, count), memory[begin:end])
                begin = end
        return self._known

    def compare(self, later: BitSample[_Key]) -> dict[_Key, bool]:
        """Return whether each tensor has the same bits in `later`. Both must be on the host.

        Tensors that are on another device by then cannot be compared and are left out.
        """
        before = self.bits()
        return {
            key: before[key] == now
            for key, now in later.bits().items()
            if key in before and before[key].kind == now.kind
        }


class Weights:
    """Odd numbers by position, by which sums are multiplied, on each device. They are computed once for many tensors."""

    def __init__(self) -> None:
        self._by_device: dict[torch.device, torch.Tensor] = {}

    def first(self, count: int, device: torch.device) -> torch.Tensor:
        """Return the first `count` of them: odd, so that no sum is multiplied by zero."""
        known = self._by_device.get(device)
        if known is None or known.numel() < count:
            end = 1 << count.bit_length()
            known = torch.arange(1, end, dtype=torch.int64, device=device) * _FACTOR
            known = (known ^ (known >> 29)) * -4658895280553007687
            known = self._by_device[device] = (known ^ (known >> 32)) | 1
        return known[:count]


def _has_room(tensor: torch.Tensor) -> bool:
    needed = min(_NEEDED, tensor.nbytes // 16)
    return needed <= MIN_PIECE or piece_bytes(tensor.device, needed) >= needed


def memory_of(tensor: torch.Tensor) -> bytes | torch.Tensor | None:
    """Return a digest, or the memory of a tensor on a device as a 1-D tensor.

    None for a layout whose bits cannot be read, and while a CUDA graph is captured.
    """
    if tensor.is_meta or (tensor.is_cuda and is_capturing()):
        return None
    try:
        if type(tensor) in _PLAIN and tensor.is_cpu and tensor.is_contiguous():
            return _digest(tensor)
        with torch.no_grad():
            data = tensor.detach()
            data = torch.view_as_real(data.resolve_conj()) if data.is_complex() else data
            if not data.is_contiguous():
                data = data.permute(sorted(range(data.dim()), key=data.stride, reverse=True)).contiguous()
            if type(data) in _PLAIN and data.is_cpu:
                return _digest(data)
            end = data.storage_offset() * data.element_size() + data.nbytes
            if type(data) in _PLAIN and end > data.untyped_storage().nbytes():
                return None
            return data.view(-1).view(torch.uint8)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _sum_or_none(memory: torch.Tensor, weights: Weights) -> torch.Tensor | None:
    try:
        return weighted_sum(memory, weights)
    except (RuntimeError, NotImplementedError, TypeError):
        # Subclasses need not have all operations.
        return None


def _is_small(memory: torch.Tensor) -> bool:
    return type(memory) is torch.Tensor and 0 < memory.nbytes <= _SMALL and memory.nbytes % 4 == 0


def _sums_of_small(
    alike: Sequence[tuple[_Key, torch.Tensor]], weights: Weights
) -> Iterator[tuple[list[_Key], torch.Tensor]]:
    """Return the weighted sums of tensors of the same few bytes, together for as many as the memory of the device allows."""
    device, size = alike[0][1].device, alike[0][1].nbytes
    count = max(1, piece_bytes(device, 4 * size * len(alike)) // (4 * size))
    for begin in range(0, len(alike), count):
        together = alike[begin : begin + count]
        # 32-bit words must begin at a multiple of 4.
        memory = [each.clone() if each.storage_offset() % 4 else each for _, each in together]
        words = torch.stack([each.view(torch.int32) for each in memory]).to(torch.int64)
        yield [key for key, _ in together], (words * weights.first(size // 4, device)).sum(1)


def weighted_sum(flat: torch.Tensor, weights: Weights | None = None) -> torch.Tensor:
    """Return one int64 number that depends on all bits of a 1-D tensor; sums wrap around."""
    weights = weights or Weights()
    sums = [_of_matrix(data, weights) for data in torch.split(flat.view(torch.uint8), _MATRIX)]
    return reduce(lambda total, each: total * _FACTOR + each, sums).view(1)


def _of_matrix(data: torch.Tensor, weights: Weights) -> torch.Tensor:
    words = data.numel() // 8
    width = max(1 << words.bit_length() // 2, -(-words // _ROWS))
    row_bytes, end = 8 * width, 8 * words
    size = end // row_bytes * row_bytes
    parts, rest = [data[:size]], data[size:end]
    if data.storage_offset() % 8:
        # 64-bit words must begin at a multiple of 8: a few rows at a time are copied.
        rows = max(1, piece_bytes(data.device, size) // row_bytes)
        parts, rest = [each.clone() for each in torch.split(parts[0], rows * row_bytes)], rest.clone()
    matrices = [each.view(torch.int64).view(-1, width) for each in parts]
    columns = reduce(torch.add, [each.sum(0) for each in matrices])
    rest = rest.view(torch.int64)
    sums = torch.cat([columns, *(each.sum(1) for each in matrices), rest, data[end:].to(torch.int64)])
    # In halves: the highest bit of a whole word would be lost where a weight, or the difference of two, is even.
    sums = sums.view(torch.int32).to(torch.int64)
    return (sums * weights.first(sums.numel(), data.device)).sum()


def _digest(tensor: torch.Tensor) -> bytes | None:
    size = tensor.nbytes
    if not size:
        return b""
    # A script may have freed the memory (`resize_(0)` of the storage).
    if tensor.storage_offset() * tensor.element_size() + size > tensor.untyped_storage().nbytes():
        return None
    # No torch operation: there may be thousands of tensors.
    return hashlib.sha256((ctypes.c_char * size).from_address(tensor.data_ptr())).digest()


def few_elements(tensor: torch.Tensor, turn: int = 0) -> torch.Tensor | None:
    """Return a few elements spread over a tensor, as a view; None where they cannot be read safely.

    Each turn takes others. Call it without grad mode.
    """
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    size = tensor.numel()
    if not size or not (tensor.is_contiguous() or _is_dense(tensor)) or (tensor.is_cuda and is_capturing()):
        return None
    count = min(_ELEMENTS, size)
    every = size // count
    # Whole numbers: every rank of a job has the same elements.
    begin = (turn * _TURN % (1 << 32)) * (size - (count - 1) * every) >> 32
    try:
        spread = tensor.as_strided((count,), (every,), tensor.storage_offset() + begin)
        if spread.dtype in _JOINED:
            return spread
        if spread.is_complex():
            spread = torch.view_as_real(spread).flatten()
        integers = _INTEGERS.get(spread.element_size())
        return None if integers is None else spread.view(integers)
    except (RuntimeError, NotImplementedError, TypeError):
        # A script may have freed the memory (`resize_(0)` of the storage).
        return None


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's elements fill the memory between its first and its last element, in any order."""
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) == tensor.numel() - 1
