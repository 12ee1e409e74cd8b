"""Remember which samples of a map-style data set the next batches have. Training thread.

Workers load batches ahead: their indices are known long before the batch is yielded. One call per batch.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.private_names import batch_number, data_of, index_sampler_of

_SAMPLES = 32
"""Maximum number of samples of a batch that are remembered."""
_BATCHES = 512
"""Maximum number of batches that workers load ahead."""


@dataclass
class Drawn:
    """How many batches a sampler has drawn in all epochs, how many samples in them, and how many batches training has used."""

    batches: int = 0
    samples: int = 0
    used: int = 0

    @property
    def used_samples(self) -> float:
        """The samples in the batches that were used, if these have the mean size of all: exact at the end of an epoch."""
        return self.used * self.samples / self.batches if self.batches else 0.0


class _Known:
    """What is remembered of an iterator."""

    __slots__ = ("batches", "drawn")

    def __init__(self, drawn: Drawn) -> None:
        self.batches: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=_BATCHES)
        """The number and the first indices of each of its newest batches."""
        self.drawn = drawn


class BatchIndices:
    """The first indices of the batches that iterators of DataLoaders will yield."""

    def __init__(self) -> None:
        self.newest: Callable[[], Any] = lambda: None
        """Returns the iterator that has noted indices last."""
        self._epochs: ByIdentity[Any, int] = ByIdentity()
        """By data set: the number of epochs that have begun."""
        self._epoch_of: ByIdentity[Any, int] = ByIdentity()
        self._known: ByIdentity[Any, _Known] = ByIdentity()
        self._drawn: ByIdentity[Any, Drawn] = ByIdentity()
        """By sampler of batches, which is the same in all epochs of a loader."""

    def note(self, iterator: Any, indices: Any) -> None:
        """Remember the indices of the next batch that is to be loaded. Only numbers are kept."""
        self.newest = weakref.ref(iterator)
        chosen = (indices,) if type(indices) is int else tuple(indices[:_SAMPLES]) if type(indices) is list else ()
        number = batch_number(iterator) if chosen and all(type(each) is int for each in chosen) else None
        if number is None:
            return
        known = self._known.get(iterator)
        if known is None:
            self._known.set(iterator, known := _Known(self._drawn_of(index_sampler_of(iterator))))
        known.batches.append((number, chosen))
        if type(indices) is list:
            known.drawn.batches += 1
            known.drawn.samples += len(indices)
        if number == 1:
            self._begins(iterator)

    def _drawn_of(self, sampler: object | None) -> Drawn:
        drawn = self._drawn.get(sampler) if sampler is not None else None
        if drawn is None:
            drawn = Drawn()
            if sampler is not None:
                self._drawn.set(sampler, drawn)
        return drawn

    def drawn_by(self, iterator: Any) -> Drawn | None:
        """Return what the sampler of an iterator has drawn so far; None where no indices tell the size of a batch."""
        known = self._known.get(iterator)
        return known.drawn if known is not None else None

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
        known = self._known.get(iterator)
        batches = known.batches if known is not None else ()
        return next((chosen for at, chosen in reversed(batches) if at == number), ())
