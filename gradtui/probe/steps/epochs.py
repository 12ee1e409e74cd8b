"""Count the steps left until the last batch of an epoch, where a DataLoader of known length yields the batches.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradtui.probe.runtime import ByIdentity
from gradtui.probe.steps.batch_indices import NAMED, BatchIndices, BatchPlace
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, STEP
from gradtui.probe.steps.sample_count import SampleCount
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.torch_private.copied_generators import copied_generator
from gradtui.probe.torch_private.data_loaders import batches_given, batches_of_epoch, loader_settings, shuffling_sampler
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.step_times import LoaderSettings


class _Left(NamedTuple):
    """What was known of an iterator when another one was followed, as during an evaluation in the middle of an epoch."""

    given: int
    """The batches that it had given. One with persistent workers begins again."""
    steps_before: int
    backwards_before: int
    is_ahead: bool


class Epochs:
    """Tracks the iterator that yielded the newest batch."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._iterator: Callable[[], Any] = lambda: None
        self._companions: list[Callable[[], Any]] = []
        """Return the other iterators of which the script took a batch together with the newest one, as by `zip`."""
        self._batches: int | None = None
        """The number of batches of the iterator. None where it is unknown."""
        self.indices = BatchIndices()
        self.used = SampleCount(counter, self.indices)
        self._steps_before = 0
        """The number of steps before the first batch of the iterator."""
        self._backwards_before = 0
        """The same of backwards."""
        self._left: ByIdentity[Any, _Left] = ByIdentity()
        """By iterator that another one has followed: what was known of it."""
        self._has_ended = False
        """Whether the iterator has said that it has no more batches."""
        self._loader: LoaderSettings | None = None
        self._looked: Callable[[], Any] = lambda: None
        """Return the iterator whose data set was searched for generators."""
        self._copied = ""
        self._steps_at = self._backwards_at = -1
        """The number of steps, and of backwards, before the newest batch."""
        self._given = 0
        """The number of the newest batch in its epoch."""
        self._first = 1
        """The number in its epoch of the first batch since the newest step that was followed by a batch."""
        self._backwards = 0
        """The largest number of backwards between two batches so far."""
        self.is_ahead = False
        """Whether the iterator yields batches before they are used: there was no backward between two of them."""
        self._is_again = False
        """Whether the newest batch is one that was given before."""
        self._passes = self._passed_at = self._backwards_passed = 0
        """The number of iterators that have ended in training, and of the steps and the backwards when the newest one has."""

    def fetched(self, iterator: Any, *, after_evaluation: bool = False) -> bool:
        """Handle a batch that a DataLoader's iterator has yielded, perhaps after an evaluation since the newest step.

        Return whether it is taken with those of other iterators.
        """
        steps, backwards, self._is_again = self._counter.steps, self._counter.micro_steps, False
        if self._accompanies(iterator, steps, backwards):
            self.used.fetched(iterator, after_evaluation=after_evaluation)
            return True
        is_new, given, before = self._iterator() is not iterator, batches_given(iterator), self._given
        if is_new:
            self._follow(iterator)
        if not is_new and given == before and backwards == self._backwards_at:
            # Its request was the last of the buffered events.
            return False
        self.used.fetched(iterator, after_evaluation=after_evaluation)
        self._given, self._has_ended = given, False
        self._companions.clear()
        if not is_new and given <= before:
            # An iterator with persistent workers begins again.
            self.is_ahead = False
        elif not is_new:
            self.is_ahead |= backwards == self._backwards_at
            self._backwards = max(self._backwards, backwards - self._backwards_at)
        if is_new or steps != self._steps_at:
            self._first = given
        self._steps_at, self._backwards_at = steps, backwards
        return False

    def given_again(self) -> None:
        """Handle a batch that the iterator had yielded before: which one it was is not known here."""
        steps = self._counter.steps
        self._first = self._given if steps != self._steps_at else self._first - 1
        self._steps_at, self._backwards_at, self._is_again = steps, self._counter.micro_steps, True
        # Its backward uses no batch of those that are counted as given.
        self._backwards_before += 1

    def replayed(self, kinds: Sequence[int]) -> None:
        """Handle the batches among buffered hook events of these kinds, whose steps and backwards are counted by now."""
        self.used.replayed(kinds)
        # From the newest one back.
        since = kinds[::-1]
        if DATA not in since:
            return
        since = since[: since.index(DATA)]
        steps_at, self._steps_at = self._steps_at, self._counter.steps - since.count(-STEP)
        self._backwards_at = self._counter.micro_steps - since.count(-BACKWARD)
        before = kinds[: len(kinds) - len(since)][::-1]
        together = before[: _index(before, -BACKWARD)].count(DATA)
        ended = _index(before, -STEP)
        batches = before[:ended].count(DATA)
        followed = self._iterator()
        self._follow_newest(together)
        is_new = self._iterator() is not followed
        if (iterator := self._iterator()) is None:
            return
        self._given = batches_given(iterator)
        if is_new or ended < len(before) or steps_at != self._steps_at:
            # The newest request may not have been answered, and one before it may have been the last of another iterator.
            newest = self._given + (kinds[-1] == DATA)
            self._first = max(1, newest + 1 - batches // (1 + len(self._companions)))

    def _follow_newest(self, together: int) -> None:
        """Track the iterators that have yielded the `together` newest batches, for one backward."""
        known = self._iterator()
        others = [each() for each in self._companions]
        if others and together == 1 + len(others) and not self._has_ended and None not in (known, *others):
            return
        found = self.indices.newest(together) or self.indices.newest()
        found = [each for each in found if not (self._has_ended and each is known)] or found
        if not found:
            return
        primary = known if any(each is known for each in found) else found[0]
        self._follow(primary)
        self._has_ended = False
        self._companions = [weakref.ref(each) for each in found if each is not primary]

    def _accompanies(self, iterator: Any, steps: int, backwards: int) -> bool:
        """Return whether the script has taken this batch together with the newest one of another iterator, and note it."""
        primary = self._iterator()
        if primary is None or iterator is primary or self._has_ended or self.is_ahead:
            return False
        if (steps, backwards) != (self._steps_at, self._backwards_at):
            return False
        if all(each() is not iterator for each in self._companions):
            self._companions.append(weakref.ref(iterator))
        return True

    def _follow(self, iterator: Any) -> None:
        """Track this iterator."""
        if self._iterator() is iterator:
            return
        if self._steps_at >= 0 and self._counter.steps > self._steps_before and self._is_over():
            self._pass_ended(self._counter.steps)
        if (left := self._iterator()) is not None:
            self._left.set(left, _Left(batches_given(left), self._steps_before, self._backwards_before, self.is_ahead))
        self._iterator, self._batches, self._has_ended = weakref.ref(iterator), batches_of_epoch(iterator), False
        known = self._left.get(iterator)
        if known is None or batches_given(iterator) <= known.given:
            known = _Left(0, self._counter.steps, self._counter.micro_steps, False)
        _, self._steps_before, self._backwards_before, self.is_ahead = known

    def named(self, *, after_backward: bool = False, samples: int = NAMED) -> tuple[NamedBatch, ...]:
        """Return the newest batch as its backward begins; one of each DataLoader whose batches the script takes together.

        Empty where batches are fetched ahead, or the script may compute with something else, so that the present one is
        unknown. `after_backward`: a backward of it has run. `samples`: how many of its samples are named at most.
        """
        if not self._is_of_batch(self._counter.micro_steps - self._backwards_at - after_backward):
            return ()
        before = self.batches_of_step - 1 if after_backward else 0
        return tuple(each.named(samples) for each in self._places(self._together(), before))

    def places(self, buffered: Sequence[int]) -> tuple[BatchPlace, ...]:
        """Return where the batches come from whose backward begins, with those before it whose gradients accumulate.

        `buffered`: the kinds of the newest buffered hook events, which are not counted yet. Empty as in `named`.
        """
        newest = buffered[::-1]
        fetched, ended = _index(newest, DATA), _index(newest, -STEP)
        run = newest[:fetched].count(-BACKWARD)
        if fetched == len(newest):
            if not self._is_of_batch(self._counter.micro_steps - self._backwards_at + run):
                return ()
            return self._places(self._together(), self.batches_of_step - 1 if ended == len(newest) else 0)
        every = self._together()
        if len(every) < 2 or None in every:
            every = self.indices.newest()
        if not every or not self._is_of_batch(run):
            return ()
        if ended == len(newest) and self._steps_at == self._counter.steps and every[0] is self._iterator():
            return self._places(every, batches_given(every[0]) - self._first)
        # One of the requests may have found the end of an epoch.
        return self._places(every, min(newest[:ended].count(DATA) // len(every), batches_given(every[0])) - 1)

    def _is_of_batch(self, backwards: int) -> bool:
        """Return whether the backward that begins is of the newest batch, after so many others since it was fetched."""
        return not (self.is_ahead or self._is_again) and 0 <= backwards < max(2, self._backwards)

    def _together(self) -> list[Any]:
        """Return the iterator, and those whose batches the script takes together with its own; None for one that is gone."""
        return [self._iterator(), *(each() for each in self._companions)]

    def _places(self, iterators: Sequence[Any], before: int) -> tuple[BatchPlace, ...]:
        if not iterators or iterators[0] is None:
            return ()
        found = [self.indices.place(each, batches_of_epoch(each), before) for each in iterators if each is not None]
        # A script may make a new data set for each epoch, whose first epoch is not that of the training.
        return tuple(each._replace(epoch=None) if self._passes and each.epoch == 1 else each for each in found)

    @property
    def members(self) -> list[Any]:
        """The iterators whose batches the newest step has used, the first one first; empty where that is not known yet."""
        iterator = self._iterator()
        if iterator is None or self._has_ended or self._counter.steps <= self._steps_before:
            return []
        return [iterator, *(other for each in self._companions if (other := each()) is not None)]

    @property
    def trained(self) -> Any | None:
        """The iterator, if a step has used one of its batches."""
        return self._iterator() if self._counter.steps > self._steps_before else None

    def unused(self, iterator: Any) -> int:
        """Return how many batches of the epoch the script has fetched, and not used in a backward."""
        return batches_given(iterator) - (self._counter.micro_steps - self._backwards_before)

    @property
    def is_known(self) -> bool:
        """Whether a DataLoader has yielded batches."""
        return self._iterator() is not None or self._given > 0

    def _is_over(self) -> bool:
        """Return whether the iterator is gone, or has given its last batch: some loops do not ask for one more."""
        iterator = self._iterator()
        return iterator is None or (self._batches is not None and batches_given(iterator) >= self._batches)

    def iterator_ended(self, iterator: Any, steps: int, *, after_evaluation: bool) -> None:
        """Handle that an iterator has no more batches, after `steps` steps.

        That of an evaluation does not count. An evaluation may also come between the last step and the end of the training
        data, of which each batch had a backward.
        """
        if iterator is self._iterator():
            self._has_ended = True
            self._note_loader(steps)
        backwards = self._counter.micro_steps - self._backwards_passed
        if not after_evaluation or batches_given(iterator) == backwards:
            self._pass_ended(steps)

    def _pass_ended(self, steps: int) -> None:
        if steps > self._passed_at:
            self._passes, self._passed_at, self._backwards_passed = self._passes + 1, steps, self._counter.micro_steps

    def passes_at(self, steps: int) -> float | None:
        """Return how often the training data has been gone through after `steps` steps; None where no DataLoader tells.

        The part of the present pass counts where it is known.
        """
        left = self.steps_left if steps > self._passed_at else None
        if left is None:
            return float(self._passes) if self._passes else None
        return self._passes + max(0.0, 1 - left / self.steps)

    @property
    def loader(self) -> LoaderSettings | None:
        """How the DataLoader loads whose batches a step has used; None if there is none."""
        self._note_loader(self._counter.steps)
        return self._loader

    def _note_loader(self, steps: int) -> None:
        iterator = self._iterator()
        if iterator is not None and steps > self._steps_before:
            same = self.indices.same_order(iterator)
            sampler = shuffling_sampler(iterator) if same else ""
            if iterator is not self._looked():
                self._looked, self._copied = weakref.ref(iterator), copied_generator(iterator)
            self._loader = replace(
                loader_settings(iterator), same_order=same, sampler=sampler, copied_generator=self._copied
            )

    @property
    def batches_of_step(self) -> int:
        """The number of batches whose gradients the step that has not ended applies."""
        iterator = self._iterator()
        if iterator is None or self._steps_at != self._counter.steps:
            return 1
        return max(1, batches_given(iterator) + 1 - self._first)

    @property
    def samples_used(self) -> int | None:
        """The number of samples that training has used; None where no DataLoader tells."""
        iterator = self._iterator()
        has_more = iterator is not None and (self._batches is None or batches_given(iterator) < self._batches)
        return self.used.samples(ahead=int(self.is_ahead and has_more))

    @property
    def steps_left(self) -> int | None:
        """The number of steps of the epoch after the one that begins with the newest batch. None where it is unknown."""
        iterator = self._iterator()
        if iterator is None or self._batches is None:
            return None
        return max(0, self._batches - batches_given(iterator)) // self._batches_a_step

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        return max(1, (self._batches or 0) // self._batches_a_step)

    @property
    def progress(self) -> tuple[int | None, int | None]:
        """The number of steps of the epoch and of those left, None where they are unknown.

        No step uses the batches of an evaluation, so they are known once a step has followed a batch of the iterator.
        """
        is_known = self._batches is not None and self._counter.steps > self._steps_before
        left = self.steps_left if is_known else None
        return (self.steps, left) if left is not None else (None, None)

    @property
    def _batches_a_step(self) -> int:
        """The number of batches of a step: more than one where gradients accumulate."""
        steps = self._counter.steps
        return max(1, round(self._counter.micro_steps / steps)) if steps else 1


def _index(kinds: Sequence[int], kind: int) -> int:
    """Return the index of the first event of a kind; their number if there is none."""
    return kinds.index(kind) if kind in kinds else len(kinds)
