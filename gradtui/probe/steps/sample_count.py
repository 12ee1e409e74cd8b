"""Count the samples of the batches of DataLoaders that training has used. Runs on the training thread.

A batch is used when a backward follows it. What an evaluation fetched does not count. The number of samples comes from the
indices that the loader's sampler has drawn, so a smaller last batch counts as what it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.steps.batch_indices import BatchIndices, Drawn
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.torch_private.data_loaders import batches_given

_SAMPLERS = 16


@dataclass
class _Source:
    """An iterator of a DataLoader."""

    iterator: Callable[[], Any]
    drawn: Drawn | None
    """What its sampler has drawn so far; None where no indices tell."""
    waiting: int = 0
    """The number of its batches that no backward has followed yet."""
    used: int = 0
    """The number of those that were used, and that are not counted yet."""
    share: int = 0
    """The number of those that the newest backward used outside of buffered steps."""


class SampleCount:
    """The batches that training has used, and their samples."""

    def __init__(self, counter: StepCounter, indices: BatchIndices) -> None:
        self._counter, self._indices = counter, indices
        self._sources: list[_Source] = []
        self.backwards_before: int | None = None
        """The number of backwards before the first batch of a DataLoader; None until there is one."""
        self._backwards = 0
        """The number of backwards up to which batches were taken for used."""
        self._ended: list[int] = []
        """Positions of the buffered requests to which there was no batch."""
        self._drawn: list[Drawn] = []
        """By sampler: the newest ones whose batches were used."""
        self._earlier = 0.0
        """The samples of the others."""
        self._unknown = 0
        """The number of batches that were used and whose size is unknown."""

    def fetched(self, iterator: Any, *, after_evaluation: bool) -> None:
        """Handle a batch that was not buffered; `after_evaluation` if an evaluation has run since the newest step.

        It calls no function for most batches.
        """
        if self._backwards != self._counter.micro_steps:
            self._backwards = self._counter.micro_steps
            for source in self._sources:
                source.share = source.waiting
                source.used, source.waiting = source.used + source.waiting, 0
        elif after_evaluation:
            for source in self._sources:
                source.waiting = 0
        for source in self._sources:
            if source.iterator() is iterator:
                break
        else:
            source = self._follow(iterator)
            if self.backwards_before is None:
                self.backwards_before = self._counter.micro_steps
        source.waiting += 1

    def request_ended(self, position: int) -> None:
        """Handle that the buffered request of a batch at this position among the buffered events got none."""
        self._ended.append(position)

    def replayed(self, kinds: Sequence[int]) -> None:
        """Handle the batches among buffered hook events of these kinds, whose backwards are counted by now."""
        requests = [at for at, kind in enumerate(kinds) if kind == DATA and at not in self._ended]
        self._ended.clear()
        if requests and self.backwards_before is None:
            self.backwards_before = self._counter.micro_steps - kinds[requests[0] :].count(-BACKWARD)
        # What waits was fetched before these events, and the backward that was counted since has followed it.
        self._catch_up()
        used = 0
        if BACKWARD in kinds:
            last = len(kinds) - 1 - kinds[::-1].index(BACKWARD)
            used = sum(at < last for at in requests)
        waiting = len(requests) - used
        newest = next(iter(self._indices.newest()), None)
        # It may be gone with the end of its loop, or have begun after the newest backward, as that of an evaluation does.
        if newest is None or (waiting and batches_given(newest) <= waiting):
            self._use(used, self._sources[-1:])
        elif used:
            self._use(used, [self._source_of(newest)])
        if newest is not None and waiting:
            self._source_of(newest).waiting += waiting

    def _use(self, batches: int, sources: Sequence[_Source]) -> None:
        """Take batches for used. Where the newest backward used those of several iterators, so did these ones."""
        together = [each for each in self._sources if each.share]
        if len(together) > 1:
            sources = together
        whole = sum(each.share for each in sources)
        for each in sources:
            each.used += round(batches * each.share / whole) if len(sources) > 1 else batches
        if not sources:
            self._unknown += batches

    def samples(self, *, ahead: int) -> int | None:
        """Return the number of samples that training has used; None where no DataLoader tells.

        `ahead` batches were fetched before the ones before them were used.
        """
        self._catch_up()
        self._count()
        samples = self._earlier + sum(each.used_samples for each in self._drawn)
        if self._drawn and self._drawn[-1].used:
            samples -= ahead * self._drawn[-1].used_samples / self._drawn[-1].used
        return round(samples) if samples and not self._unknown else None

    def _catch_up(self) -> None:
        """Take the batches that wait for used, if a backward has followed them."""
        if self._backwards != self._counter.micro_steps:
            self._backwards = self._counter.micro_steps
            for source in self._sources:
                source.used, source.waiting = source.used + source.waiting, 0

    def _count(self) -> None:
        for each in self._sources:
            if each.drawn is None or not each.drawn.batches:
                self._unknown += each.used
            elif each.used:
                if not any(each.drawn is known for known in self._drawn):
                    self._drawn.append(each.drawn)
                each.drawn.used += each.used
            each.used = 0
        while len(self._drawn) > _SAMPLERS:
            self._earlier += self._drawn.pop(0).used_samples

    def _source_of(self, iterator: Any) -> _Source:
        found = next((each for each in self._sources if each.iterator() is iterator), None)
        return found if found is not None else self._follow(iterator)

    def _follow(self, iterator: Any) -> _Source:
        self._count()
        kept = [each for each in self._sources if each.waiting or each.share or each.iterator() is not None]
        self._sources = kept[1 - _SAMPLERS :]
        source = _Source(weakref.ref(iterator), self._indices.drawn_by(iterator))
        self._sources.append(source)
        return source
