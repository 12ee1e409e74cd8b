"""Read the gradients that a script without an optimizer applies. It may clip them between backward and its own update.

Gradients are read when backward ends, since many scripts clear them right after the update. They are read again after a
clipping function of torch has run, and at the end of the step (the next forward, backward or `zero_grad`) if they still exist
and have changed: every in-place change of a tensor increments its version. Runs on the training thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from enum import Enum

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.gradients.grad_norms import GradNormSample

_MAX_OPEN = 16
"""Maximum number of steps whose readings have not arrived from a device."""


class _End(Enum):
    """What has happened to the gradients between their reading and the end of the step."""

    SAME = "unchanged"
    CHANGED_ONCE = "each was changed in place once"
    CHANGED = "changed"
    GONE = "some no longer exist, and whether they changed before the update is unknown"


@dataclass
class _Step:
    """One step whose norms have not been delivered."""

    readings: list[GradNormSample] = field(default_factory=list)
    expected: int = 0
    """Number of readings begun."""
    is_outdated: bool = False
    """The last reading was not made, or is lost, so the gradients may have changed since the one before."""
    end: _End | None = None
    seen: list[tuple[weakref.ref[torch.Tensor], int]] = field(default_factory=list)
    """The gradients at the last reading, and their versions."""


class ManualSteps:
    """Keeps the readings of a step until it ends, and delivers the reading of the applied gradients.

    Args:
        gradients: returns the existing gradients.
        measure: starts a reading of a step's gradients; returns whether it will be delivered.
        first: receives the reading of the gradients as backward left them.
        deliver: receives the reading of the applied gradients.
    """

    def __init__(
        self,
        gradients: Callable[[], Iterable[torch.Tensor]],
        measure: Callable[[int], bool],
        first: Callable[[GradNormSample], None],
        deliver: Callable[[GradNormSample], None],
    ) -> None:
        self.step = 0
        """The step that has not ended; 0 if there is none."""
        self._gradients, self._measure, self._first, self._deliver = gradients, measure, first, deliver
        self._steps: dict[int, _Step] = {}

    def on_backward_post(self, step: int) -> None:
        """Begin a step when its backward has ended, and read its gradients."""
        self.end()
        self.step = step
        self._steps[step] = _Step()
        if len(self._steps) > _MAX_OPEN:
            del self._steps[next(iter(self._steps))]
        self.read()

    def read(self) -> None:
        """Read the gradients of the step that has not ended."""
        open_step = self._steps[self.step]
        open_step.expected += 1
        open_step.seen = [(weakref.ref(each), each._version) for each in self._gradients()]  # noqa: SLF001
        if not self._measure(self.step):
            self.lost(self.step)

    def lost(self, step: int) -> None:
        """Handle that a reading of `step` was not made, or was dropped."""
        if (open_step := self._steps.get(step)) is not None:
            open_step.expected -= 1
            open_step.is_outdated = True
            self._settle(step)

    def end(self) -> None:
        """End the step, because the next one begins or the run is over."""
        if not self.step:
            return
        open_step = self._steps[self.step]
        end = _end(open_step.seen, list(self._gradients()))
        if end in (_End.CHANGED, _End.CHANGED_ONCE):
            self.read()
        number, self.step = self.step, 0
        open_step.end, open_step.seen = end, []
        self._settle(number)

    def tree_changed(self) -> None:
        """Drop the norms by parameter index, since parameters have new indices."""
        for step in self._steps.values():
            step.readings = [replace(reading, norms=[], absent=()) for reading in step.readings]

    def takes(self, reading: GradNormSample) -> bool:
        """Handle a reading. Return whether it belongs to a step without an optimizer; if so, it is kept."""
        open_step = self._steps.get(reading.step)
        if open_step is None:
            return False
        if not open_step.readings:
            self._first(reading)
        open_step.readings.append(reading)
        self._settle(reading.step)
        return True

    def _settle(self, number: int) -> None:
        open_step = self._steps[number]
        if open_step.end is None or len(open_step.readings) < open_step.expected:
            return
        del self._steps[number]
        if not open_step.readings:
            return
        *earlier, last = open_step.readings
        loss = open_step.readings[0].loss
        is_applied = open_step.end is not _End.GONE and not open_step.is_outdated
        if earlier and not last.total and earlier[-1].total:
            # The gradients were set to zero after the update.
            is_applied = open_step.end is not _End.CHANGED
            last = earlier[-1]
        self._deliver(replace(last, loss=loss, is_applied=is_applied))


def _end(seen: list[tuple[weakref.ref[torch.Tensor], int]], now: list[torch.Tensor]) -> _End:
    if len(now) < len(seen):
        return _End.GONE
    if any(gradient is not reference() for gradient, (reference, _) in zip(now, seen)):
        return _End.CHANGED
    changes = {gradient._version - version for gradient, (_, version) in zip(now, seen)}  # noqa: SLF001
    if changes <= {0}:
        return _End.SAME
    return _End.CHANGED_ONCE if changes == {1} else _End.CHANGED
