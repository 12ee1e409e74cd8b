"""Copies of values that consist of tensors and plain Python objects, and how they are written back into the same objects."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from gradtui.probe.kept_states.host_memory import HostMemory
from gradtui.probe.torch_private.unwrap import PLAIN, plain_tensors

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device)


class IncompleteCopyError(Exception):
    """Raised for a value that cannot be copied or written back; the message names it."""


class KeptTensor:
    """The values of one tensor, and a weak reference to it.

    Raises:
        IncompleteCopyError: the tensor has no values in this process, or no plain tensor holds them.
    """

    __slots__ = ("_copies", "_is_whole", "_reference", "_strides", "device", "kind")

    def __init__(self, tensor: torch.Tensor, memory: HostMemory) -> None:
        self._reference = weakref.ref(tensor)
        self.device = tensor.device
        parts = _parts(tensor)
        self._is_whole = len(parts) == 1 and parts[0] is tensor
        self.kind = f"a {type(tensor).__name__}" if tensor.layout is torch.strided else "sparse"
        """What it is, in words."""
        self._strides = [part.stride() for part in parts]
        self._copies = [memory.copy_of(part) for part in parts]

    @property
    def values(self) -> torch.Tensor | None:
        """The copy; None if the tensor consists of several, or wraps another one."""
        return self._copies[0] if self._is_whole else None

    def fits(self, tensor: object) -> bool:
        """Return whether the values can be written into a tensor."""
        if not isinstance(tensor, torch.Tensor) or tensor.device != self.device:
            return False
        parts = _parts(tensor)
        return [(each.shape, each.dtype) for each in parts] == [(each.shape, each.dtype) for each in self._copies]

    def is_equal(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has the same bits. On a device this waits for a copy to the host."""
        return all(_has_bits_of(part, kept) for part, kept in zip(_parts(tensor), self._copies))

    def write(self, tensor: torch.Tensor) -> None:
        """Write the values into a tensor, where its bits differ. An equal one keeps its version counter."""
        for part, kept in zip(_parts(tensor), self._copies):
            if not _has_bits_of(part, kept):
                with torch.inference_mode() if part.is_inference() else torch.no_grad():
                    part.detach().copy_(kept)

    def made(self) -> torch.Tensor:
        """Return another tensor with these values on the same device."""
        if len(self._copies) != 1:
            raise IncompleteCopyError("a tensor of several parts is gone")
        (kept,) = self._copies
        made = torch.empty_strided(kept.shape, self._strides[0], dtype=kept.dtype, device=self.device)
        return made.copy_(kept)

    def now(self) -> torch.Tensor | None:
        """Return the tensor that was copied; None if it is gone."""
        return self._reference()


def size_of_copy(tensor: torch.Tensor) -> int:
    """Return the bytes of a copy of a tensor. Raises `IncompleteCopyError` where there can be none."""
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_meta:
        return tensor.nbytes
    return sum(part.nbytes for part in _parts(tensor))


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_meta:
        return [tensor]
    parts = list(plain_tensors(tensor))
    if not parts and tensor.numel():
        raise IncompleteCopyError(f"a tensor of type {type(tensor).__name__} has no values that can be read")
    if any(part.device.type == "meta" for part in parts):
        raise IncompleteCopyError("tensors on the device meta have no values: they are offloaded")
    return parts


def _has_bits_of(tensor: torch.Tensor, kept: torch.Tensor) -> bool:
    return torch.equal(_words(tensor.detach().cpu()), _words(kept))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as integers, in which NaN equals itself and -0.0 differs from 0.0."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.view(_INTEGERS[tensor.element_size()])


class KeptValue:
    """The copy of any value. Tensors are `KeptTensor`; dictionaries, lists and tuples are copied with what they contain."""

    __slots__ = ("content",)

    def __init__(self, value: object, memory: HostMemory) -> None:
        self.content = _copied(value, memory)
        """The value, with a `KeptTensor` for each tensor. Only to be read."""

    def written(self, live: object) -> Any:
        """Return the value as it was. Where `live` has a tensor or a container in the same place, that is what is written."""
        return _written(self.content, live)

    def differs(self, live: object) -> bool:
        """Return whether a live value is another one than this."""
        return _differs(self.content, live)


def _copied(value: object, memory: HostMemory) -> object:
    if isinstance(value, torch.Tensor):
        return KeptTensor(value, memory)
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, dict):
        return {key: _copied(each, memory) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(each, memory) for each in value)  # type: ignore[call-arg,attr-defined]
    if any(isinstance(each, torch.Tensor) for each in getattr(value, "__dict__", {}).values()):
        raise IncompleteCopyError(f"a value of type {type(value).__name__} has tensors that only its own code can copy")
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise IncompleteCopyError(f"a value of type {type(value).__name__} cannot be copied") from error


def _written(content: object, live: object) -> Any:
    if isinstance(content, KeptTensor):
        target = live if content.fits(live) else content.now()
        if target is None or not content.fits(target):
            return content.made()
        content.write(target)  # type: ignore[arg-type]
        return target
    if isinstance(content, dict):
        target_dict: dict[Any, Any] = live if isinstance(live, dict) else {}
        written = {key: _written(each, target_dict.get(key)) for key, each in content.items()}
        target_dict.clear()
        target_dict.update(written)
        return target_dict
    if isinstance(content, (list, tuple)):
        before = live if isinstance(live, (list, tuple)) else ()
        items = [_written(each, before[at] if at < len(before) else None) for at, each in enumerate(content)]
        if isinstance(content, list) and isinstance(live, list):
            live[:] = items
            return live
        return type(content)(items)
    return content if isinstance(content, _SIMPLE) else copy.deepcopy(content)


def _differs(content: object, live: object) -> bool:
    if isinstance(content, KeptTensor):
        return not (content.fits(live) and isinstance(live, torch.Tensor) and content.is_equal(live))
    if isinstance(content, dict):
        return (
            not isinstance(live, dict)
            or content.keys() != live.keys()
            or any(_differs(each, live[key]) for key, each in content.items())
        )
    if isinstance(content, (list, tuple)):
        return (
            type(live) is not type(content)
            or len(live) != len(content)
            or any(_differs(each, other) for each, other in zip(content, live))
        )
    # A value that has no comparison of its own is taken to be equal if its type is.
    return type(content) is not type(live) or (isinstance(content, _SIMPLE) and _unequal(content, live))


def _unequal(content: object, live: object) -> bool:
    is_nan = content != content and live != live
    return not is_nan and content != live
