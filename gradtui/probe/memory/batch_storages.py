"""Record the storages of a step's batches: arguments of the outermost model calls, and batches from a DataLoader.

Only at sampled steps, and by weak references: a storage no longer counts when the script has released it. Runs on the
training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch

from gradtui.probe.memory.batch_contents import BatchContents, noted, parts_of
from gradtui.probe.steps import StepCounter
from gradtui.probe.torch_private.private_names import is_being_traced, operations_are_observed
from gradtui.probe.torch_private.random_states import saved_random_states
from gradtui.probe.torch_private.unwrap import plain_tensors

_MAX_STORAGES = 10_000
"""Maximum number of storages that are recorded per step."""


_Storage = tuple["weakref.ref[Any]", torch.dtype]
"""A storage and the dtype of its elements."""


class BatchStorages:
    """The living input storages of the script's models in the current step."""

    def __init__(self, counter: StepCounter) -> None:
        self.on = True
        """Whether to record the arguments of model calls: the current step is sampled, or the first has not begun."""
        self.reads_random = False
        """Whether to read the random states before the first model call of a step."""
        self._next: dict[int, _Storage] = {}
        """Storages of the newest batch, with which the next step may begin."""
        self._of_step: dict[int, _Storage] = {}
        self._counter = counter
        self.bytes = self._bytes_of_call = 0
        """The sizes of the arguments of the model calls in a sampled step, and of the newest call."""
        self.contents = BatchContents()
        """The newest batch, as far as it was recorded."""

    def begin(self, *, on: bool, reads_random: bool | None = None) -> None:
        """Begin a step; `on` if it is sampled. `reads_random` is None to leave that as it is."""
        self.on, self.reads_random = on, self.reads_random if reads_random is None else reads_random
        self._of_step = self._next if on else {}
        self._next = {}
        self.bytes = self._bytes_of_call

    def fetched(self, batch: Any, iterator: Any, *, is_together: bool = False) -> None:
        """Record a batch that the iterator of a DataLoader has returned, `is_together` with those of other DataLoaders."""
        parts = [] if is_being_traced() else [*parts_of(batch)]
        self._next = _storages(parts)
        if self.on:
            self._add(self._next)
        if not (is_together and self.contents.loaded and self.contents.steps == self._counter.steps):
            self.contents = BatchContents(steps=self._counter.steps)
        self.contents.loaded.append((weakref.ref(iterator), noted(parts)))

    def given(self, now: int, arguments: Any) -> None:  # noqa: ARG002 - as every callback of a hook
        """Record the arguments of an outermost model call. A step may begin with it."""
        parts = [] if is_being_traced() else [*parts_of(arguments)]
        found = _storages(parts)
        if len(self._next) > _MAX_STORAGES:
            # An evaluation before the first step may be long. A step begins with its last arguments.
            self._next = {}
        self._next |= found
        self._add(found)
        self._bytes_of_call = sum(each.numel() * each.itemsize for _, each in parts if not each.is_nested)
        self.bytes += self._bytes_of_call
        is_first = self.contents.take_call(parts, self._counter.steps)
        if is_first and self.reads_random and not operations_are_observed():
            self.contents.random = saved_random_states()

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


def _storages(parts: Iterable[tuple[Any, torch.Tensor]]) -> dict[int, _Storage]:
    """Return the storages of the tensors in a batch by their keys."""
    found: dict[int, _Storage] = {}
    for _, value in parts:
        for tensor in plain_tensors(value):
            # A torch.func wrapper of a tensor has no storage of its own, and raises.
            with suppress(NotImplementedError):
                storage = tensor.untyped_storage()
                found[storage._cdata] = weakref.ref(storage), tensor.dtype  # noqa: SLF001 - as `storage_key`
    return found
