"""Count the steps left until the last batch of an epoch, where a DataLoader of known length yields the batches.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from gradtui.probe.steps.batch_indices import BatchIndices
from gradtui.probe.steps.hook_buffer import BACKWARD, DATA, STEP
from gradtui.probe.steps.sample_count import SampleCount
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.torch_private.private_names import batches_given, batches_of_epoch, loader_settings
from gradtui.protocol.step_times import LoaderSettings


class Epochs:
    """Tracks the iterator that yielded the newest batch."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._iterator: Callable[[], Any] = lambda: None
        self._batches: int | None = None
        """The number of batches of the iterator. None where it is unknown."""
        self.indices = BatchIndices()
        self.used = SampleCount(counter, self.indices)
        self._steps_before = 0
        """The number of steps before the first batch of the iterator."""
        self._loader: LoaderSettings | None = None
        self._steps_at = self._backwards_at = -1
        """The number of steps, and of backwards, before the newest batch."""
        self._given = 0
        """The number of the newest batch in its epoch."""
        self._of_step = 0
        """The number of batches since the newest step that was followed by a batch."""
        self._backwards = 0
        """The largest number of backwards between two batches so far."""
        self._is_ahead = False
        """Whether the iterator yields batches before they are used: there was no backward between two of them."""
        self._passes = self._passed_at = self._backwards_passed = 0
        """The number of iterators that have ended in training, and of the steps and the backwards when the newest one has."""

    def fetched(self, iterator: Any, *, after_evaluation: bool = False) -> None:
        """Handle a batch that a DataLoader's iterator has yielded, perhaps after an evaluation since the newest step."""
        steps, backwards = self._counter.steps, self._counter.micro_steps
        is_new, given, before = self._iterator() is not iterator, batches_given(iterator), self._given
        if is_new:
            self._follow(iterator)
        if not is_new and given == before and backwards == self._backwards_at:
            # Its request was the last of the buffered events.
            return
        self.used.fetched(iterator, after_evaluation=after_evaluation)
        self._given = given
        if is_new or given <= before:
            # An iterator with persistent workers begins again.
            self._is_ahead = False
        else:
            self._is_ahead |= backwards == self._backwards_at
            self._backwards = max(self._backwards, backwards - self._backwards_at)
        self._of_step = 1 if steps != self._steps_at else self._of_step + 1
        self._steps_at, self._backwards_at = steps, backwards

    def replayed(self, kinds: Sequence[int]) -> None:
        """Handle the batches among buffered hook events of these kinds, whose steps and backwards are counted by now."""
        self.used.replayed(kinds)
        # From the newest one back.
        since = kinds[::-1]
        if DATA not in since:
            return
        since = since[: since.index(DATA)]
        self._steps_at = self._counter.steps - since.count(-STEP)
        self._backwards_at = self._counter.micro_steps - since.count(-BACKWARD)
        before = kinds[: len(kinds) - len(since)][::-1]
        ended = before.index(-STEP) if -STEP in before else len(before)
        self._of_step = before[:ended].count(DATA) + (self._of_step if ended == len(before) else 0)
        if (newest := self.indices.newest()) is not None:
            self._follow(newest)
            self._given = batches_given(newest)

    def _follow(self, iterator: Any) -> None:
        """Track this iterator."""
        if self._iterator() is iterator:
            return
        if self._steps_at >= 0 and self._counter.steps > self._steps_before and self._is_over():
            self._pass_ended(self._counter.steps)
        self._iterator, self._batches = weakref.ref(iterator), batches_of_epoch(iterator)
        self._steps_before, self._is_ahead = self._counter.steps, False

    def batch(self, *, after_backward: bool = False) -> tuple[int, int | None] | None:
        """Return the number of the newest batch in its epoch, and that of all of them, as its backward begins.

        `after_backward`: a backward of it has run. None where batches are fetched ahead, or the script may compute with
        something else, so that the present one is unknown.
        """
        iterator, run = self._iterator(), self._counter.micro_steps - self._backwards_at
        if iterator is None or self._is_ahead or not after_backward <= run < max(2, self._backwards) + after_backward:
            return None
        return batches_given(iterator), self._batches

    def _is_over(self) -> bool:
        """Return whether the iterator is gone, or has given its last batch: some loops do not ask for one more."""
        iterator = self._iterator()
        return iterator is None or (self._batches is not None and batches_given(iterator) >= self._batches)

    def iterator_ended(self, iterator: Any, steps: int, *, after_evaluation: bool) -> None:
        """Handle that an iterator has no more batches, after `steps` steps.

        That of an evaluation does not count. An evaluation may also come between the last step and the end of the training
        data, of which each batch had a backward.
        """
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
        iterator = self._iterator()
        if iterator is not None and self._counter.steps > self._steps_before:
            self._loader = loader_settings(iterator)
        return self._loader

    @property
    def number(self) -> int | None:
        """The number of the epoch of the newest batch, from 1; None if it is unknown."""
        return self.indices.epoch_of(self._iterator())

    @property
    def batches_of_step(self) -> int:
        """The number of batches whose gradients the step that has not ended applies."""
        iterator = self._iterator()
        if iterator is None or self._steps_at != self._counter.steps:
            return 1
        return max(1, min(self._of_step, batches_given(iterator)))

    @property
    def samples(self) -> tuple[int, ...]:
        """The first indices of the samples of the newest batch; empty if they are unknown."""
        iterator = self._iterator()
        return self.indices.of(iterator, batches_given(iterator)) if iterator is not None else ()

    @property
    def samples_used(self) -> int | None:
        """The number of samples that training has used; None where no DataLoader tells."""
        iterator = self._iterator()
        has_more = iterator is not None and (self._batches is None or batches_given(iterator) < self._batches)
        return self.used.samples(ahead=int(self._is_ahead and has_more))

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
