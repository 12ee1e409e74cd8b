"""The peak of a phase that is read in parts: readings fall within phases too, and a phase may come more than once a step.

Training thread.
"""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase

Peak = tuple["int | None", bool]
"""The highest total between two readings in bytes, and whether that is exact or a lower bound."""


class PhasePeaks:
    """What is known so far of the peaks of one step's phases."""

    def __init__(self) -> None:
        self._present: Peak | None = None
        """Of the phase that is running, up to the last reading."""
        self._forward: Peak | None = None
        """Of the forward, if something came between it and backward: what it keeps can only be told then."""
        self._told: dict[Phase, MemoryMeasured] = {}

    def begin_step(self, before: Peak, *, listening: bool) -> None:
        """A step that is examined begins, within a phase whose beginning was seen only if we were `listening` then."""
        self._present = before if listening else (None, False)
        self._forward = None
        self._told.clear()

    def read_within(self, part: Peak) -> None:
        """The running phase was read, and goes on."""
        self._present = part

    def skipped(self) -> None:
        """The running phase ended, and nobody will tell of it."""
        self._present = None

    def forward_left(self, part: Peak) -> None:
        """A forward ended that is told of only when backward begins."""
        self._forward, self._present = _joined(self._forward, _joined(self._present, part)), None

    def of(self, phase: Phase, part: Peak) -> Peak:
        """The peak of a phase that has ended, the last part of it included."""
        known, self._present = _joined(self._present, part), None
        if phase is Phase.FORWARD:
            # The gradients of the step before may have been there when it ended, and be gone when backward begins.
            known, self._forward = _joined(self._forward, known), None
        return known

    def told(self, ledger: MemoryMeasured) -> None:
        """This was emitted in the present step."""
        self._told[ledger.phase] = ledger

    def once_more(self, phase: Phase, part: Peak) -> MemoryMeasured | None:
        """The phase came again in the same step (gradients are accumulated): its ledger with the higher peak, if it is.

        Only exact peaks are told a second time; None for any other.
        """
        (peak, exact), ledger = self.of(phase, part), self._told.get(phase)
        if ledger is None or not exact or not ledger.peak_exact or peak is None or peak <= (ledger.peak or 0):
            return None
        self._told[phase] = higher = replace(ledger, peak=peak)
        return higher


def _joined(first: Peak | None, second: Peak) -> Peak:
    if first is None:
        return second
    known = [peak for peak, _ in (first, second) if peak is not None]
    return max(known, default=None), first[1] and second[1]
