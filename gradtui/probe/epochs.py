"""How many steps are left until the last batch of an epoch, where a DataLoader of known length gives the batches.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gradtui.probe.step_counter import StepCounter
from gradtui.probe.torch_private import batches_given, batches_of_epoch


class Epochs:
    """Follows the iterator that gave the newest batch."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._iterator: Callable[[], Any] = lambda: None
        self._batches: int | None = None
        """How many it gives in all. None where that is unknown, and once the last step of the epoch has been told."""

    def fetched(self, iterator: Any) -> None:
        """A DataLoader's iterator has given a batch."""
        if self._iterator() is not iterator:
            self._iterator, self._batches = weakref.ref(iterator), batches_of_epoch(iterator)

    @property
    def steps_left(self) -> int | None:
        """How many steps of the epoch follow the one that begins with the newest batch. None where that is unknown."""
        iterator = self._iterator()
        if iterator is None or self._batches is None:
            return None
        return max(0, self._batches - batches_given(iterator)) // self._batches_a_step

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        return max(1, (self._batches or 0) // self._batches_a_step)

    def ends(self) -> None:
        """The last step of the epoch begins."""
        self._batches = None

    @property
    def _batches_a_step(self) -> int:
        """More than one where gradients accumulate."""
        steps = self._counter.steps
        return max(1, round(self._counter.micro_steps / steps)) if steps else 1
