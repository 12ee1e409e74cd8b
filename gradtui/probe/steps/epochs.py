"""Count the steps left until the last batch of an epoch, where a DataLoader of known length yields the batches.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gradtui.probe.steps.batch_indices import BatchIndices
from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.torch_private.private_names import batches_given, batches_of_epoch


class Epochs:
    """Tracks the iterator that yielded the newest batch."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._iterator: Callable[[], Any] = lambda: None
        self._batches: int | None = None
        """The number of batches of the iterator. None where it is unknown."""
        self.indices = BatchIndices()
        self._backwards_before = 0
        """The number of backwards before the first batch of the iterator."""
        self._steps_before = 0
        """The number of steps before the first batch of the iterator."""
        self._fetched_at = -1
        """The number of steps before the newest batch."""
        self._passes = self._passed_at = self._backwards_passed = 0
        """The number of iterators that have ended in training, and of the steps and the backwards when the newest one has."""

    def fetched(self, iterator: Any) -> None:
        """Handle a batch that a DataLoader's iterator has yielded."""
        if self._iterator() is not iterator:
            if self._fetched_at >= 0 and self._counter.steps > self._steps_before and self._is_over():
                self._pass_ended(self._counter.steps)
            self._iterator, self._batches = weakref.ref(iterator), batches_of_epoch(iterator)
            self._steps_before, self._backwards_before = self._counter.steps, self._counter.micro_steps
        self._fetched_at = self._counter.steps

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
    def batch(self) -> tuple[int, int | None] | None:
        """The number of the newest batch in its epoch, and that of all of them, while the first backward of it begins.

        None where batches are fetched ahead, or have another number of backwards than one, so that the present one is unknown.
        """
        iterator = self._iterator()
        if iterator is None or self._fetched_at != self._counter.steps:
            return None
        given = batches_given(iterator)
        is_present = given == self._counter.micro_steps - self._backwards_before + 1
        return (given, self._batches) if is_present else None

    @property
    def samples(self) -> tuple[int, ...]:
        """The first indices of the samples of that batch; empty if they are unknown."""
        iterator, batch = self._iterator(), self.batch
        return self.indices.of(iterator, batch[0]) if batch is not None else ()

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
