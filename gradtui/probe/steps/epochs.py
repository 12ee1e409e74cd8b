"""How many steps are left until the last batch of an epoch, where a DataLoader of known length gives the batches.

Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gradtui.probe.steps.step_counter import StepCounter
from gradtui.probe.torch_private.private_names import batches_given, batches_of_epoch

_MAX_AHEAD = 3
"""After the last batch was fetched so many steps may be the last one: accelerate and Lightning fetch batches ahead."""


class Epochs:
    """Follows the iterator that gave the newest batch."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._iterator: Callable[[], Any] = lambda: None
        self._batches: int | None = None
        """How many it gives in all. None where that is unknown, and once the last step of the epoch has been told."""
        self._ahead = 0
        """How many more steps may belong to the epoch whose last batch was fetched."""

    def fetched(self, iterator: Any) -> None:
        """A DataLoader's iterator has given a batch."""
        self._ahead = 0
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
        """The last step of the epoch begins, unless batches were fetched ahead."""
        self._batches, self._ahead = None, _MAX_AHEAD

    def goes_on(self) -> bool:
        """A step begins. Says whether its batch was fetched before the step that was taken for the last one of the epoch."""
        self._ahead = max(0, self._ahead - 1)
        return self._ahead > 0

    @property
    def _batches_a_step(self) -> int:
        """More than one where gradients accumulate."""
        steps = self._counter.steps
        return max(1, round(self._counter.micro_steps / steps)) if steps else 1
