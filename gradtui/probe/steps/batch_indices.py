"""Remember which samples of a map-style data set the next batches have. Training thread.

Workers load batches ahead: their indices are known long before the batch is yielded. One call per batch.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.private_names import batch_number

_SAMPLES = 32
"""Maximum number of samples of a batch that are remembered."""
_BATCHES = 512
"""Maximum number of batches that workers load ahead."""


class BatchIndices:
    """The first indices of the batches that iterators of DataLoaders will yield."""

    def __init__(self) -> None:
        self.newest: Callable[[], Any] = lambda: None
        """Returns the iterator that has noted indices last."""
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

    def of(self, iterator: Any, number: int) -> tuple[int, ...]:
        """Return the first indices of the batch with this number in the epoch, from 1; empty if they are unknown."""
        known = self._known.get(iterator) or ()
        return next((chosen for at, chosen in reversed(known) if at == number), ())
