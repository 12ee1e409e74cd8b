"""A batch that can be given to the script more than once: its tensors by reference, in containers of their own.

Scripts take entries out of a batch (`batch.pop("labels")`) and put others in. So each time they are given other containers.
"""

from __future__ import annotations

import copy
import sys
import zlib
from collections import UserDict
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch

from gradtui.probe.torch_private.private_names import version_of

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class NotTheSameError(Exception):
    """Raised where a batch cannot be given again as it was; the message says why, as it follows "the batches"."""


class CopiedBatch:
    """Keeps a batch.

    Tensors in memory that processes share, as those that workers load, are copied: each of them holds a file open until it is
    freed.
    """

    def __init__(self, batch: Any) -> None:
        self._tensors: dict[int, tuple[torch.Tensor, int]] = {}
        """By the id of what is kept: the tensor, and its version counter when the script was given it."""
        self._checksums: list[tuple[Any, int]] = []
        self.nbytes = 0
        self._kept = self._copied(batch, keeps=True)

    def again(self, *, checks: bool = True) -> Any:
        """Return the batch. Raises `NotTheSameError` if the script has changed it in place, unless that does not matter."""
        if not checks:
            return self._copied(self._kept, keeps=False)
        changed = any(version_of(tensor) != version for tensor, version in self._tensors.values())
        if changed or any(_checksum(array) != known for array, known in self._checksums):
            raise NotTheSameError("were changed in place by the script, so they cannot be given again")
        return self._copied(self._kept, keeps=False)

    def host_bytes(self) -> int:
        """Return the bytes of its tensors in host memory."""
        return sum(
            tensor.nbytes for tensor, _ in self._tensors.values() if tensor.is_cpu and tensor.layout is torch.strided
        )

    def is_dropped(self) -> bool:
        """Return whether nothing but this object keeps its tensors."""
        return all(count <= _OWN_REFERENCES for count in _references(self._tensors))

    def _copied(self, value: Any, *, keeps: bool) -> Any:
        if isinstance(value, torch.Tensor):
            return self._kept_tensor(value) if keeps else value
        if isinstance(value, _PLAIN):
            return value
        kind = type(value)
        if isinstance(value, (dict, UserDict)):
            made = copy.copy(value)
            for key in value:
                made[key] = self._copied(value[key], keeps=keeps)
            return made
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*(self._copied(each, keeps=keeps) for each in value))
        if kind in (list, tuple, set, frozenset):
            return kind(self._copied(each, keeps=keeps) for each in value)
        if hasattr(value, "__array_interface__") and hasattr(value, "tobytes"):
            if keeps:
                self._checksums.append((value, _checksum(value)))
                self.nbytes += int(value.nbytes)
            return value
        return self._copied_object(value, keeps=keeps)

    def _copied_object(self, value: Any, *, keeps: bool) -> Any:
        """Return a copy of an object with tensors in its attributes."""
        fields = getattr(value, "__dict__", None)
        if not isinstance(fields, dict) or isinstance(value, (type, torch.nn.Module)) or callable(value):
            return value
        try:
            made = copy.copy(value)
        except Exception as error:
            raise NotTheSameError(f"contain a {type(value).__name__}, which cannot be copied") from error
        if not is_dataclass(value) or not getattr(type(value), "__dataclass_params__").frozen:  # noqa: B009
            for name, each in fields.items():
                if isinstance(each, (torch.Tensor, dict, list, tuple)):
                    made.__dict__[name] = self._copied(each, keeps=keeps)
        return made

    def _kept_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        self.nbytes += tensor.nbytes if tensor.layout is torch.strided else 0
        if tensor.is_inference() or (
            tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.is_shared()
        ):
            with torch.no_grad():
                tensor = tensor.detach().clone()
        self._tensors[id(tensor)] = tensor, version_of(tensor)
        return tensor


def _references(tensors: Mapping[int, tuple[object, int]]) -> Iterator[int]:
    return (sys.getrefcount(tensor) for tensor, _ in tensors.values())


def _own_references() -> int:
    """Return the count for what `_tensors` and `_kept` alone refer to. How many of them are the call's depends on the version
    of Python: from 3.14 on a call borrows references that were counted before."""
    tensors = {0: (object(), 0)}
    kept = [tensors[0][0]]
    (own,) = _references(tensors)
    del kept
    return own


_OWN_REFERENCES = _own_references()


def _checksum(array: Any) -> int:
    return zlib.crc32(array.tobytes())
