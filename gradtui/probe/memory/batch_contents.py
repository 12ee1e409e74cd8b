"""The tensors of a batch by their places in it, held weakly: a tensor is gone once the script has released its memory.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, is_dataclass
from itertools import islice
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.named_tuple import NamedTuple
from gradtui.probe.torch_private.unwrap import plain_tensors
from gradtui.system.printable import printable

_MAX_VALUES = 10_000
"""Maximum number of values of one batch that are visited, including lists of plain numbers."""
_MAX_CALLS, _MAX_TENSORS = 64, 1_000
"""Maximum numbers of model calls that are remembered with a batch, and of tensors of one of them."""
_MAX_NAME = 100


class BatchTensor(NamedTuple):
    """A tensor of a batch: which part of which storage."""

    name: str
    """Its place in the batch, such as `0` or `inputs.mask`."""
    storage: weakref.ref[Any]
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of its elements in bytes, each counted once."""
        return self.dtype.itemsize * torch.Size(self.size).numel()

    def copy(self) -> torch.Tensor | None:
        """Return a copy on the CPU, which may wait for a device; None if its memory is gone."""
        view = self.view()
        return view.detach().to("cpu", copy=True).contiguous() if view is not None else None

    def view(self) -> torch.Tensor | None:
        """Return a tensor with the same memory; None if that is gone."""
        storage = self.storage()
        if storage is None or storage.nbytes() < self._end:
            return None
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(
            storage, self.offset, self.size, self.stride
        )

    @property
    def _end(self) -> int:
        """The number of bytes of the storage up to its last element."""
        if not all(self.size):
            return 0
        last = sum((count - 1) * step for count, step in zip(self.size, self.stride))
        return (self.offset + last + 1) * self.dtype.itemsize


@dataclass
class BatchContents:
    """What DataLoaders have yielded for a step, and the arguments of the outermost model calls since."""

    loaded: list[tuple[Callable[[], Any], list[BatchTensor]]] = field(default_factory=list)
    """By weak reference to the iterator that yielded it."""
    calls: list[list[BatchTensor]] = field(default_factory=list)
    steps: int = 0
    """The number of executed steps when the newest of these was noted."""
    random: Mapping[str, Any] | None = None
    """The random states as the first of these calls began, if they were read."""

    def take_call(self, parts: Iterable[tuple[Any, torch.Tensor]], steps: int) -> bool:
        """Note the arguments of a call, `(args, kwargs)`, after `steps` executed steps. Return whether it is the first one."""
        if steps != self.steps:
            self.calls, self.random = [], None
        self.steps, is_first = steps, not self.calls
        if len(self.calls) < _MAX_CALLS:
            # Positional arguments are named by their number, others by their name.
            self.calls.append([each._replace(name=each.name.partition(".")[2]) for each in noted(parts)])
        return is_first

    def tensors(self) -> list[BatchTensor]:
        """Return the tensors that DataLoaders have yielded. Of several DataLoaders the place in their batch comes second."""
        if len(self.loaded) == 1:
            return self.loaded[0][1]
        return [each._replace(name=f"{at}.{each.name}") for at, (_, own) in enumerate(self.loaded) for each in own]


def parts_of(values: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield the tensors in a batch, the last one first, each with its place, however the batch is nested.

    A place is a pair: that of the container, and the key in it. Results of operations that autograd records do not count as a
    batch: they are one model's output that goes into another.
    """
    waiting: list[tuple[Any, Any]] = [((), values)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            break
        place, value = waiting.pop()
        if not isinstance(value, torch.Tensor):
            waiting.extend(((place, key), each) for key, each in islice(items_of(value), _MAX_VALUES))
        elif value.grad_fn is None:
            yield place, value


def noted(parts: Iterable[tuple[Any, torch.Tensor]]) -> list[BatchTensor]:
    """Return the tensors with a storage of their own, the first one first. `parts` begin with the last one."""
    found: dict[str, BatchTensor] = {}
    for place, value in parts:
        if len(found) >= _MAX_TENSORS:
            break
        # A torch.func wrapper of a tensor has no storage of its own, and raises.
        with suppress(NotImplementedError, RuntimeError):
            if value.is_conj() or value.is_neg() or [*plain_tensors(value)] != [value]:
                continue
            name = _name(place, found)
            reference = weakref.ref(value.untyped_storage())
            found[name] = BatchTensor(
                name, reference, value.dtype, int(value.storage_offset()), tuple(value.size()), value.stride()
            )
    return [*found.values()][::-1]


def _name(place: Any, known: Mapping[str, object]) -> str:
    keys: list[str] = []
    while place:
        place, key = place
        keys.append(printable(str(key)) if type(key) in (str, int) else type(key).__name__)
    name = ".".join(reversed(keys))[:_MAX_NAME] or "batch"
    return (
        name
        if name not in known
        else next(other for at in range(2, len(known) + 3) if (other := f"{name}#{at}") not in known)
    )


def items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the values of a container with their keys, without calling anything that the script's own classes define."""
    if isinstance(value, list):
        return enumerate(list.__iter__(value))
    if isinstance(value, tuple):
        return enumerate(tuple.__iter__(value))
    if isinstance(value, dict):
        return dict.items(value)
    if isinstance(value, UserDict):
        # Tokenizers return one.
        data = getattr(value, "__dict__", {}).get("data")
        return dict.items(data) if isinstance(data, dict) else ()
    if is_dataclass(value) and not isinstance(value, type):
        # A dataclass with slots has no `__dict__`, and is skipped.
        fields: dict[str, Any] = getattr(value, "__dict__", {})
        return fields.items()
    return ()
