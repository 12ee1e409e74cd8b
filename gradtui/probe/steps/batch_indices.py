"""Remember which samples of a map-style data set the next batches have. Training thread.

Workers load batches ahead: their indices are known long before the batch is yielded. One call per batch.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.private_names import batch_number, data_of

_SAMPLES = 32
"""Maximum number of samples of a batch that are remembered."""
_BATCHES = 512
"""Maximum number of batches that workers load ahead."""


class BatchIndices:
    """The first indices of the batches that iterators of DataLoaders will yield."""

    def __init__(self) -> None:
        self.newest: Callable[[], Any] = lambda: None
        """Returns the iterator that has noted indices last."""
        self._epochs: ByIdentity[Any, int] = ByIdentity()
        """By data set: the number of epochs that have begun."""
        self._epoch_of: ByIdentity[Any, int] = ByIdentity()
        self._known: ByIdentity[Any, deque[tuple[int, tuple[int, ...]]]] = ByIdentity()

    def note(self, iterator: Any, indices: Any) -> None:
        """Remember the indices of the next batch that is to be loaded. Only numbers are kept."""
        self.newest = weakref.ref(iterator)
        chosen = (indices,) if type(indices) is int else tuple(indices[:_SAMPLES]) if type(indices) is list else ()
        number = batch_number(iterator) if chosen and all(type(each) is int for each in chosen) else None
        if number is None:
            return
        known = self._known.get(iterator)
        if known is None:
            self._known.set(iterator, known := deque(maxlen=_BATCHES))
        known.append((number, chosen))
        if number == 1:
            self._begins(iterator)

    def _begins(self, iterator: Any) -> None:
        data = data_of(iterator)
        # A script that evaluates on its training data mostly does so without gradients.
        if data is not None and torch.is_grad_enabled():
            epoch = (self._epochs.get(data) or 0) + 1
            self._epochs.set(data, epoch)
            self._epoch_of.set(iterator, epoch)

    def epoch_of(self, iterator: Any) -> int | None:
        """Return the number, from 1, of the epoch of its data set that an iterator goes through; None if it is unknown."""
        return self._epoch_of.get(iterator)

    def of(self, iterator: Any, number: int) -> tuple[int, ...]:
        """Return the first indices of the batch with this number in the epoch, from 1; empty if they are unknown."""
        known = self._known.get(iterator) or ()
        return next((chosen for at, chosen in reversed(known) if at == number), ())
