"""Combine the peak of a phase from several readings: readings also fall within phases, and a phase may repeat in a step.

Training thread.
"""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.events import MemoryMeasured
from gradtui.protocol.vocabulary import Phase

Peak = tuple["int | None", bool]
"""The highest total between two readings in bytes, and whether it is exact or a lower bound."""


class PhasePeaks:
    """The known parts of the peaks of one step's phases."""

    def __init__(self) -> None:
        self._present: Peak | None = None
        """Peak of the running phase, up to the last reading."""
        self._forward: Peak | None = None
        """Peak of the forward, if something came between it and backward: what it keeps is known only when backward begins."""
        self._emitted: dict[Phase, MemoryMeasured] = {}

    def begin_step(self, before: Peak, *, listening: bool) -> None:
        """Begin a sampled step within a phase. The beginning of that phase was observed only if hooks were `listening` then."""
        self._present = before if listening else (None, False)
        self._forward = None
        self._emitted.clear()

    def read_within(self, part: Peak) -> None:
        """Record a reading within the running phase, which continues."""
        self._present = part

    def skipped(self) -> None:
        """Discard the peak of a phase that is not emitted."""
        self._present = None

    def forward_left(self, part: Peak) -> None:
        """Record the end of a forward that is emitted only when backward begins."""
        self._forward, self._present = _joined(self._forward, _joined(self._present, part)), None

    def of(self, phase: Phase, part: Peak) -> Peak:
        """Return the peak of a phase that has ended, including its last part."""
        known, self._present = _joined(self._present, part), None
        if phase is Phase.FORWARD:
            # The gradients of the previous step may have existed when it ended, and be freed when backward begins.
            known, self._forward = _joined(self._forward, known), None
        return known

    def record(self, breakdown: MemoryMeasured) -> None:
        """Record a breakdown emitted in the current step."""
        self._emitted[breakdown.phase] = breakdown

    def once_more(self, phase: Phase, part: Peak) -> MemoryMeasured | None:
        """Return a repeated phase's breakdown with the higher peak (gradients are accumulated); None if the peak is not higher.

        Only exact peaks are emitted again; None for any other.
        """
        (peak, exact), breakdown = self.of(phase, part), self._emitted.get(phase)
        if breakdown is None or not exact or not breakdown.peak_exact or peak is None or peak <= (breakdown.peak or 0):
            return None
        self._emitted[phase] = higher = replace(breakdown, peak=peak)
        return higher


def _joined(first: Peak | None, second: Peak) -> Peak:
    if first is None:
        return second
    known = [peak for peak, _ in (first, second) if peak is not None]
    return max(known, default=None), first[1] and second[1]
