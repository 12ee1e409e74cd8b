"""Record the storages of a step's batches: arguments of the outermost model calls, and batches from a DataLoader.

Only at sampled steps, and by weak references: a storage no longer counts when the script has released it. Runs on the
training thread.
"""

from __future__ import annotations

import weakref
from collections import UserDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import torch

from gradtui.probe.torch_private.private_names import is_being_traced
from gradtui.probe.torch_private.unwrap import plain_tensors

_MAX_VALUES = 10_000
"""Maximum number of values of one batch that are visited, including lists of plain numbers."""

_MAX_STORAGES = 10_000
"""Maximum number of storages that are recorded per step."""


_Storage = tuple["weakref.ref[Any]", torch.dtype]
"""A storage and the dtype of its elements."""


class BatchStorages:
    """The living input storages of the script's models in the current step."""

    def __init__(self) -> None:
        self.on = True
        """Whether to record the arguments of model calls: the current step is sampled, or the first has not begun."""
        self._next: dict[int, _Storage] = {}
        """Storages of the newest batch, with which the next step may begin."""
        self._of_step: dict[int, _Storage] = {}

    def begin(self, *, on: bool) -> None:
        """Begin a step; `on` if it is sampled."""
        self.on = on
        self._of_step = self._next if on else {}
        self._next = {}

    def fetched(self, batch: Any) -> None:
        """Record a batch that a DataLoader has returned."""
        self._next = _storages(batch)
        if self.on:
            self._add(self._next)

    def given(self, now: int, arguments: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """Record the arguments of an outermost model call. A step may begin with it."""
        found = _storages(arguments)
        if len(self._next) > _MAX_STORAGES:
            # An evaluation before the first step may be long. A step begins with its last arguments.
            self._next = {}
        self._next |= found
        self._add(found)

    def alive(self) -> Iterator[Any]:
        """Return the storages of the step's batches that are still alive."""
        return (storage for reference, _ in self._of_step.values() if (storage := reference()) is not None)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the same storages as 1-D tensors that share their memory."""
        for reference, dtype in self._of_step.values():
            storage = reference()
            if storage is not None:
                yield torch.empty(0, dtype=dtype, device=storage.device).set_(storage)

    def _add(self, storages: dict[int, _Storage]) -> None:
        if len(self._of_step) > _MAX_STORAGES:
            self._of_step = {key: held for key, held in self._of_step.items() if held[0]() is not None}
        if len(self._of_step) <= _MAX_STORAGES:
            self._of_step |= storages


def _storages(values: Any) -> dict[int, _Storage]:
    """Return the storages of the tensors in a batch by their keys, however the batch is nested.

    Results of operations that autograd records do not count as a batch: they are one model's output that goes into another.
    """
    if is_being_traced():
        return {}
    found: dict[int, _Storage] = {}
    waiting = [values]
    for _ in range(_MAX_VALUES):
        if not waiting:
            break
        value = waiting.pop()
        if not isinstance(value, torch.Tensor):
            waiting.extend(islice(batch_parts(value), _MAX_VALUES))
        elif value.grad_fn is None:
            for tensor in plain_tensors(value):
                # A torch.func wrapper of a tensor has no storage of its own, and raises.
                with suppress(NotImplementedError):
                    storage = tensor.untyped_storage()
                    found[storage._cdata] = weakref.ref(storage), tensor.dtype  # noqa: SLF001 - as `storage_key`
    return found


def batch_parts(value: Any) -> Iterable[Any]:
    """Return the values of a container, without calling anything that the script's own classes define."""
    if isinstance(value, list):
        return list.__iter__(value)
    if isinstance(value, tuple):
        return tuple.__iter__(value)
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, UserDict) or (is_dataclass(value) and not isinstance(value, type)):
        # Tokenizers return a `UserDict`. A dataclass with slots has no `__dict__`, and is skipped.
        values: Iterable[Any] = getattr(value, "__dict__", {}).values()
        return values
    return ()
