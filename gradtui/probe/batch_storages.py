"""The storages of a step's batches: arguments of the outermost model calls, and what a DataLoader has given.

Only of steps that are looked at, and by weak references: a storage is no longer counted when the script has let go of it.
Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections import UserDict
from collections.abc import Iterator
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import torch

from gradtui.probe.memory_ledger import plain_tensors
from gradtui.probe.torch_private import operations_are_observed

_MOST_VALUES = 10_000
"""Values of one batch that are looked at, lists of plain numbers included."""

_MOST_STORAGES = 10_000
"""Storages that are remembered of one step."""


class BatchStorages:
    """What the script's models work on in the present step, as far as it is alive."""

    def __init__(self) -> None:
        self.on = True
        """The present step is looked at, or the first has not begun: arguments of model calls are wanted."""
        self._newest: dict[int, weakref.ref[Any]] = {}
        """Of the batch that a DataLoader has given last: it may be the next step's."""
        self._of_step: dict[int, weakref.ref[Any]] = {}

    def begin(self, *, on: bool) -> None:
        """A step begins that is looked at, or is not."""
        self.on = on
        self._of_step = dict(self._newest) if on else {}

    def fetched(self, now: int, batch: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """A DataLoader has given a batch."""
        self._newest = {} if operations_are_observed() else _storages(batch)
        if self.on:
            self._add(self._newest)

    def given(self, now: int, arguments: Any) -> None:  # noqa: ARG002
        """An outermost model call has these arguments."""
        if self.on and not operations_are_observed():
            self._add(_storages(arguments))

    def alive(self) -> Iterator[Any]:
        """The storages of the step's batches that somebody still holds."""
        for reference in self._of_step.values():
            storage = reference()
            if storage is not None:
                yield storage

    def _add(self, storages: dict[int, weakref.ref[Any]]) -> None:
        if len(self._of_step) > _MOST_STORAGES:
            self._of_step = {key: held for key, held in self._of_step.items() if held() is not None}
        if len(self._of_step) <= _MOST_STORAGES:
            self._of_step |= storages


def _storages(values: Any) -> dict[int, weakref.ref[Any]]:
    """The storages of the tensors in a batch, however it is nested, by their keys.

    Results of operations that autograd records are no batch: one model's output that goes into another.
    """
    found: dict[int, weakref.ref[Any]] = {}
    waiting = [values]
    for _ in range(_MOST_VALUES):
        if not waiting:
            break
        value = waiting.pop()
        if not isinstance(value, torch.Tensor):
            waiting.extend(_parts(value))
        elif value.grad_fn is None:
            for tensor in plain_tensors(value):
                storage = tensor.untyped_storage()
                found[storage._cdata] = weakref.ref(storage)  # noqa: SLF001 - as `storage_key`
    return found


def _parts(value: Any) -> list[Any]:
    """What a container holds; nothing that the script's own classes define is called."""
    if isinstance(value, list):
        return list(islice(list.__iter__(value), _MOST_VALUES))
    if isinstance(value, tuple):
        return list(islice(tuple.__iter__(value), _MOST_VALUES))
    if isinstance(value, dict):
        return list(islice(dict.values(value), _MOST_VALUES))
    if isinstance(value, UserDict) or (is_dataclass(value) and not isinstance(value, type)):
        # The first is what tokenizers return. A dataclass with slots has no such dictionary, and is passed over.
        return list(islice(getattr(value, "__dict__", {}).values(), _MOST_VALUES))
    return []
