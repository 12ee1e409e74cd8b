"""The storages of a step's batches: arguments of the outermost model calls, and what a DataLoader has given.

Only of steps that are looked at, and by weak references: a storage is no longer counted when the script has let go of it.
Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import torch

from gradtui.probe.torch_private.private_names import is_being_traced
from gradtui.probe.torch_private.unwrap import plain_tensors

_MAX_VALUES = 10_000
"""Values of one batch that are looked at, lists of plain numbers included."""

_MAX_STORAGES = 10_000
"""Storages that are remembered of one step."""


class _Reference(weakref.ref[Any]):
    """A weak reference to a storage that knows the type of its elements."""

    __slots__ = ("dtype",)
    dtype: torch.dtype


class BatchStorages:
    """What the script's models work on in the present step, as far as it is alive."""

    def __init__(self) -> None:
        self.on = True
        """The present step is looked at, or the first has not begun: arguments of model calls are wanted."""
        self.from_iterator: Callable[[Any], None] = lambda _: None
        """Called with the iterator of a DataLoader that has given a batch."""
        self._next: dict[int, _Reference] = {}
        """Of what came last: the next step may begin with it."""
        self._of_step: dict[int, _Reference] = {}

    def begin(self, *, on: bool) -> None:
        """A step begins that is looked at, or is not."""
        self.on = on
        self._of_step = self._next if on else {}
        self._next = {}

    def fetched(self, now: int, batch: Any, iterator: Any = None) -> None:  # noqa: ARG002 - as every callback of a hook
        """A DataLoader has given a batch by this iterator."""
        if iterator is not None:
            self.from_iterator(iterator)
        self._next = _storages(batch)
        if self.on:
            self._add(self._next)

    def given(self, now: int, arguments: Any) -> None:  # noqa: ARG002
        """An outermost model call has these arguments. It may be what a step begins with."""
        found = _storages(arguments)
        if len(self._next) > _MAX_STORAGES:
            # An evaluation before the first step may be long. A step begins with what came last of it.
            self._next = {}
        self._next |= found
        self._add(found)

    def alive(self) -> Iterator[Any]:
        """The storages of the step's batches that somebody still holds."""
        for reference in self._of_step.values():
            storage = reference()
            if storage is not None:
                yield storage

    def tensors(self) -> Iterator[torch.Tensor]:
        """The same as tensors of one dimension, which share that memory."""
        for reference in self._of_step.values():
            storage = reference()
            if storage is not None:
                yield torch.empty(0, dtype=reference.dtype, device=storage.device).set_(storage)

    def _add(self, storages: dict[int, _Reference]) -> None:
        if len(self._of_step) > _MAX_STORAGES:
            self._of_step = {key: held for key, held in self._of_step.items() if held() is not None}
        if len(self._of_step) <= _MAX_STORAGES:
            self._of_step |= storages


def _storages(values: Any) -> dict[int, _Reference]:
    """The storages of the tensors in a batch, however it is nested, by their keys.

    Results of operations that autograd records are no batch: one model's output that goes into another.
    """
    if is_being_traced():
        return {}
    found: dict[int, _Reference] = {}
    waiting = [values]
    for _ in range(_MAX_VALUES):
        if not waiting:
            break
        value = waiting.pop()
        if not isinstance(value, torch.Tensor):
            waiting.extend(_parts(value))
        elif value.grad_fn is None:
            for tensor in plain_tensors(value):
                # What torch.func puts around a tensor has no storage of its own, and raises.
                with suppress(NotImplementedError):
                    storage = tensor.untyped_storage()
                    found[storage._cdata] = reference = _Reference(storage)  # noqa: SLF001 - as `storage_key`
                    reference.dtype = tensor.dtype
    return found


def _parts(value: Any) -> list[Any]:
    """What a container holds; nothing that the script's own classes define is called."""
    if isinstance(value, list):
        return list(islice(list.__iter__(value), _MAX_VALUES))
    if isinstance(value, tuple):
        return list(islice(tuple.__iter__(value), _MAX_VALUES))
    if isinstance(value, dict):
        return list(islice(dict.values(value), _MAX_VALUES))
    if isinstance(value, UserDict) or (is_dataclass(value) and not isinstance(value, type)):
        # The first is what tokenizers return. A dataclass with slots has no such dictionary, and is passed over.
        return list(islice(getattr(value, "__dict__", {}).values(), _MAX_VALUES))
    return []
