"""Remember which samples of a map-style data set the next batches have. Training thread.

Workers load batches ahead: their indices are known long before the batch is yielded. One call per batch.
"""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.torch_private.data_loaders import (
    batch_number,
    batches_given,
    data_of,
    data_set_of,
    index_sampler_of,
    shuffling_sampler,
)
from gradtui.protocol.batches import NamedBatch

NAMED = 32
"""Maximum number of samples of a batch that an event names."""
_SAMPLES = 4_096
"""Maximum number of samples of a batch that are remembered."""
_BATCHES, _ALL_SAMPLES = 512, 1 << 18
"""Maximum number of batches of a DataLoader that are remembered, and of samples in them (2 MiB)."""
_LOADERS = 8
"""The newest calls that are remembered: those of a step that takes a batch of each of several DataLoaders."""
_COMPARED = 16
"""Number of samples at the beginning of each epoch that are compared. Two random orders of 16 samples are rarely the same."""


class _BatchSamples(NamedTuple):
    """The samples of one batch."""

    number: int
    """The number of the batch in its epoch, from 1."""
    first: array[int]
    size: int


class BatchPlace(NamedTuple):
    """Where a batch comes from: as `NamedBatch`, whose samples are looked up when they are asked for.

    It keeps neither the batch nor its iterator alive.
    """

    number: int
    batches: int | None
    epoch: int | None
    before: int
    data_set: str
    is_stream: bool
    drawn: Sequence[_BatchSamples]
    """What is remembered of the batches of its iterator."""

    def named(self, samples: int = NAMED) -> NamedBatch:
        """Name the batch, and at most so many of its samples. Of several batches that may be meant no sample is named."""
        drawn = (
            None if self.before else next((each for each in reversed(self.drawn) if each.number == self.number), None)
        )
        first, size = (tuple(drawn.first[:samples]), drawn.size) if drawn is not None else ((), 0)
        return NamedBatch(
            self.number, self.batches, self.epoch, self.before, first, size, self.data_set, self.is_stream
        )


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


class _Beginnings:
    """Whether the epochs of a sampler begin with the same samples."""

    __slots__ = ("epochs", "first", "is_same", "newest")

    def __init__(self) -> None:
        self.first: list[int] = []
        self.newest: list[int] = []
        self.is_same = True
        self.epochs = 0
        """The number of epochs that were compared, the first one included."""

    def begins(self) -> None:
        """Handle the first batch of an epoch."""
        self.newest = []

    def add(self, samples: Sequence[int]) -> None:
        """Handle the next samples of the epoch."""
        self.newest += samples[: _COMPARED - len(self.newest)]
        if len(self.newest) == _COMPARED:
            self.first = self.first or self.newest
            self.is_same &= self.newest == self.first
            self.epochs += 1

    @property
    def same(self) -> int:
        """The number of epochs, if all began with the same samples; 0 otherwise."""
        return self.epochs if self.is_same else 0


class _Known:
    """What is remembered of an iterator."""

    __slots__ = ("batches", "beginnings", "drawn")

    def __init__(self, drawn: Drawn, beginnings: _Beginnings | None) -> None:
        self.batches: deque[_BatchSamples] = deque(maxlen=_BATCHES)
        """Its newest ones."""
        self.drawn, self.beginnings = drawn, beginnings


class BatchIndices:
    """The first indices of the batches that iterators of DataLoaders will yield."""

    def __init__(self) -> None:
        self._newest: deque[Callable[[], Any]] = deque(maxlen=_LOADERS)
        """Return the iterators that have noted indices last."""
        self._epochs: ByIdentity[Any, int] = ByIdentity()
        """By data set: the number of epochs that have begun."""
        self._epoch_of: ByIdentity[Any, int] = ByIdentity()
        self._known: ByIdentity[Any, _Known] = ByIdentity()
        self._drawn: ByIdentity[Any, Drawn] = ByIdentity()
        """By sampler of batches, which is the same in all epochs of a loader."""
        self._beginnings: ByIdentity[Any, _Beginnings] = ByIdentity()
        """The same of samplers that shuffle."""

    def note(self, iterator: Any, indices: Any) -> None:
        """Remember the indices of the next batch that is to be loaded. Only numbers are kept."""
        self._newest.append(weakref.ref(iterator))
        number = batch_number(iterator)
        if number == 1:
            self._begins(iterator)
        chosen: Sequence[Any] = (indices,) if type(indices) is int else indices
        if number is None or type(chosen) not in (list, tuple, range) or not chosen:
            return
        first = chosen[:_SAMPLES]
        if not all(map(_is_whole, set(map(type, first)))):
            return
        known = self._known.get(iterator)
        if known is None:
            sampler = index_sampler_of(iterator)
            known = _Known(self._drawn_of(sampler), self._beginnings_of(iterator, sampler))
            self._known.set(iterator, known)
        batches = known.batches
        batches.append(_BatchSamples(number, array("q", map(int, first)), len(chosen)))
        while len(batches) * len(batches[-1].first) > _ALL_SAMPLES and len(batches) > 1:
            batches.popleft()
        if (beginnings := known.beginnings) is not None:
            if number == 1:
                beginnings.begins()
            if len(beginnings.newest) < _COMPARED:
                beginnings.add([*map(int, first)])
        # A single index is that of a data set that yields whole batches, of a size that it does not tell.
        if type(indices) is not int:
            known.drawn.batches += 1
            known.drawn.samples += len(chosen)

    def _drawn_of(self, sampler: object | None) -> Drawn:
        drawn = self._drawn.get(sampler) if sampler is not None else None
        if drawn is None:
            drawn = Drawn()
            if sampler is not None:
                self._drawn.set(sampler, drawn)
        return drawn

    def _beginnings_of(self, iterator: Any, sampler: object | None) -> _Beginnings | None:
        if sampler is None or not shuffling_sampler(iterator):
            return None
        if (known := self._beginnings.get(sampler)) is None:
            self._beginnings.set(sampler, known := _Beginnings())
        return known

    def same_order(self, iterator: Any) -> int:
        """Return the number of epochs of an iterator's sampler, if it shuffles and all began with the same samples; or 0."""
        known = self._known.get(iterator)
        return known.beginnings.same if known is not None and known.beginnings is not None else 0

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

    def newest(self, count: int = 1) -> list[Any]:
        """Return the living iterators among the `count` that have noted indices last, each once, the oldest first."""
        found: dict[int, Any] = {}
        for reference in [*self._newest][-count:]:
            if (iterator := reference()) is not None:
                found[id(iterator)] = iterator
        return [*found.values()]

    def place(self, iterator: Any, count: int | None, before: int = 0) -> BatchPlace:
        """Return where the newest batch of an iterator comes from.

        Args:
            iterator: of a DataLoader.
            count: the number of batches of its epoch.
            before: the number of batches before it that may be meant as well.
        """
        known = self._known.get(iterator)
        drawn = known.batches if known is not None else ()
        return BatchPlace(
            batches_given(iterator), count, self._epoch_of.get(iterator), before, *data_set_of(iterator), drawn
        )


def _is_whole(kind: type) -> bool:
    """Return whether a type is that of whole numbers, of Python or NumPy: no code of the script makes numbers of them."""
    return kind is int or (kind.__module__ == "numpy" and kind.__name__.lstrip("u").startswith("int"))
