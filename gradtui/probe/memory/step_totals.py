"""Read the total of allocated bytes at the end of forward, backward and optimizer step of each step. Training thread.

These three readings take some microseconds on the CPU. An allocator that keeps a peak gives that of each phase too. In a
sampled step they are part of the memory breakdown instead.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import thread_time_ns

from gradtui.named_tuple import NamedTuple
from gradtui.probe.memory.memory_breakdown import MemoryAccountant, Peak
from gradtui.probe.memory.spikes import Spike, SpikeDetector
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.device_memory import DeviceMemory, joined
from gradtui.protocol.events import MemoryMeasured, MemorySpikeFound, PhasePeakMeasured, StepMemoryMeasured, StepTotals
from gradtui.protocol.vocabulary import Phase

_MAX_WAITING = 4096
"""Steps that wait to be emitted; the oldest are dropped."""
_MAX_SPIKES = 100
"""After this many spikes of a run, only every `_EMITTED_EVERY`-th is emitted."""
_EMITTED_EVERY = 100
_MAX_DETECTORS = 32
"""Groups of steps that are compared: a script may have an optimizer for each parameter."""
PHASES_OF_A_STEP = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Total(NamedTuple):
    """The bytes now, and the highest since the reading before; None where unknown."""

    now: int | None
    highest: int | None
    devices: tuple[DeviceMemory, ...] = ()
    """Each device of several."""


class StepTotalsReader:
    """Reads totals where `is_due`, and emits those of several steps together. `spiked` is called when a step stands out."""

    def __init__(self, context: ProbeContext, accountant: MemoryAccountant, spiked: Callable[[], None]) -> None:
        self.interval = context.totals_interval
        self.is_due = False
        """Whether the current step is read."""
        self.spent_ns = 0
        """CPU time in nanoseconds that the readings of the current step have taken so far."""
        self._emit, self._clock, self._hooks = context.emit, context.clock, context.hooks
        self._counter = context.counter
        self._guarded = context.hooks.guarded("memory totals")
        self._accountant, self._spiked = accountant, spiked
        self._totals: dict[Phase, int] = {}
        """The highest total at the end of each phase of the current step."""
        self._peaks: dict[Phase, int] = {}
        """The highest total within each; empty where no allocator keeps a peak."""
        self._peak_since = -1
        """The step after which the allocator's peak counts."""
        self._newest = -1
        """The newest step whose peak is known."""
        self._earlier = 0
        """The highest total since that step, as far as it was read, but in no phase of a step."""
        self._devices: tuple[DeviceMemory, ...] = ()
        """Each device of several, since the step that was read last."""
        self._between: dict[Phase, int] = {}
        """The highest emitted peak of each phase that is no part of a step."""
        self._waiting: deque[StepTotals] = deque(maxlen=_MAX_WAITING)
        self._detectors: dict[tuple[int, bool], SpikeDetector] = {}
        """By index of the optimizer, whose steps may need other amounts of memory than those of others, and by whether the
        peaks are exact: without its allocator's peak, a step seems to need less."""
        self._spikes = 0

    def fences(self, optimizer: int) -> tuple[float, float]:
        """Return the bytes above which an inexact and an exact peak of a step of the optimizer with this index stand out."""
        inexact, exact = (self._detectors.get((optimizer, is_exact)) for is_exact in (False, True))
        return inexact.fence if inexact is not None else math.inf, exact.fence if exact is not None else math.inf

    def begin_step(self, step: int, *, is_sampled: bool) -> None:
        """Begin `step`; the totals of a sampled one come with its breakdown."""
        self._totals, self._peaks, self.spent_ns = {}, {}, 0
        self.is_due = not is_sampled and not self._hooks.is_off("memory totals") and not self.interval.steps_until(step)
        is_read = self.is_due or is_sampled
        if is_read and self._peak_since != step - 1 and self._accountant.allocator.device_type != "cpu":
            # The peak of the step counts from here.
            with self._guarded:
                began = thread_time_ns()
                self._note_earlier(self.read())
                self._peak_since = step - 1
                self.spent_ns = thread_time_ns() - began

    def read(self) -> Total:
        """Return the total now, and the peak since the reading before."""
        reading = self._accountant.allocator.read()
        return Total(reading.total, reading.peak if reading.since_last else None, reading.devices)

    def _note_earlier(self, total: Total) -> None:
        self._earlier = max(self._earlier, total.highest or 0)
        self._devices = joined(self._devices, total.devices)

    def phase_ended(self, phase: Phase) -> None:
        """Read the total at the end of a phase of the current step, if it is due."""
        if self.is_due:
            with self._guarded:
                began = thread_time_ns()
                self.add(phase, self.read())
                self.spent_ns += thread_time_ns() - began
                if phase is Phase.OPTIMIZER:
                    self.charge()

    def add(self, phase: Phase, total: Total) -> None:
        """Add a total that was read at the end of a phase of the current step."""
        now, highest, devices = total
        if devices:
            self._devices = joined(self._devices, devices)
        if now is not None:
            self._totals[phase] = max(now, self._totals.get(phase, now))
        if highest is not None:
            self._peaks[phase] = max(highest, self._peaks.get(phase, 0))

    def read_between(self, peak: Peak) -> None:
        """Take the peak since the previous reading from one that was made between steps."""
        if peak.is_exact:
            self._note_earlier(Total(None, peak.bytes, peak.devices))

    def left(self, phase: Phase) -> None:
        """Read the peak of a phase that is no part of a step, such as an evaluation. Emit it if it is the highest so far."""
        if self._accountant.allocator.device_type == "cpu" or self._hooks.is_off("memory totals"):
            return
        with self._guarded:
            total = self.read()
            peak, self._devices = total.highest, joined(self._devices, total.devices)
            if self._peak_since != self._counter.steps:
                # It may be that of a step that was not read.
                self._earlier = max(self._earlier, peak or 0)
            elif peak is not None and peak > self._between.get(phase, 0):
                self._between[phase] = peak
                self._emit(PhasePeakMeasured(self._clock.at(), self._counter.steps, phase, peak, total.devices))

    def charge(self) -> None:
        """Record what the readings of the current step have taken, since the last one has been made."""
        if self.spent_ns:
            self.interval.add_cost(self.spent_ns / 1e9)
            self.spent_ns = 0

    def step_ended(self, step: int, optimizer: int) -> None:
        """End the current step, whose number is `step`, of the optimizer with this index; -1 if it had no optimizer."""
        if optimizer < 0:
            self.charge()
        if self._totals:
            self.interval.was_read(step)
            has_peaks = bool(self._peaks) and self._peaks.keys() >= self._totals.keys()
            if has_peaks and self._peak_since != step - 1:
                self._earlier = max(self._earlier, self._peaks.pop(Phase.FORWARD, 0))
            is_exact, self._peak_since = has_peaks and self._newest >= 0, step if has_peaks else -1
            unread, unsure = self._unread_before(step, has_peaks=has_peaks)
            peaks = [*self._totals.values(), *self._peaks.values(), unsure]
            totals = _of_step(step, self._totals, self._peaks, max(peaks), is_exact=is_exact, unread=unread)
            self._take(totals, optimizer)
        self._totals, self._peaks = {}, {}

    def _unread_before(self, step: int, *, has_peaks: bool = True) -> tuple[int, int]:
        """Return how many steps before `step` were not read, and the highest total in them, or before its first phase."""
        newest, self._newest = self._newest, step if has_peaks else -1
        earlier, self._earlier = self._earlier, 0
        return (step - 1 - newest, earlier) if newest >= 0 else (0, 0)

    def sampled(self, step: int, optimizer: int, phases: Iterable[MemoryMeasured]) -> None:
        """Take the totals of a sampled step of the optimizer with this index from its breakdown."""
        found = {each.phase: each for each in phases if each.phase in PHASES_OF_A_STEP}
        totals = {phase: each.held.total for phase, each in found.items()}
        peaks = [each.peak for each in found.values() if each.peak is not None]
        if not peaks:
            return
        is_exact = all(each.peak_exact for each in found.values())
        self._peak_since, (unread, unsure) = step, self._unread_before(step, has_peaks=is_exact)
        # A profile of the step knows peaks that the totals of other steps do not show.
        peak = max(peaks) if is_exact else max((total for total in totals.values() if total is not None), default=None)
        for each in found.values():
            self._devices = joined(self._devices, each.devices)
        exact = {phase: each.peak for phase, each in found.items() if each.peak_exact}
        peak = max(peak or 0, unsure) if is_exact else peak
        self._take(_of_step(step, totals, exact, peak, is_exact=is_exact, unread=unread), optimizer)

    def _take(self, totals: StepTotals, optimizer: int) -> None:
        if self._devices:
            totals, self._devices = replace(totals, devices=self._devices), ()
        self._waiting.append(totals)
        key = optimizer, totals.peak_exact
        if totals.peak is None or (key not in self._detectors and len(self._detectors) >= _MAX_DETECTORS):
            return
        detector = self._detectors.setdefault(key, SpikeDetector())
        was_above = totals.peak > detector.fence
        spike = detector.add(totals.step, _highest_phase(totals), totals.peak)
        if was_above:
            self._spiked()
        if spike is not None:
            self._report(spike)

    def _report(self, spike: Spike) -> None:
        self._spikes += 1
        if self._spikes <= _MAX_SPIKES or self._spikes % _EMITTED_EVERY == 0:
            at, number = self._clock.at(), self._spikes
            self._emit(MemorySpikeFound(at, spike.step, spike.phase, spike.peak, spike.usual, number, spike.steps))

    def tree_changed(self) -> None:
        """Handle a change of the models: the peaks of others say nothing about theirs."""
        self._detectors.clear()
        self._devices = ()

    def flush(self, *, at_end: bool = False) -> None:
        """Emit what was read since the last call, and at the end of the run the peak of the steps that were not read."""
        steps = self._counter.steps
        if at_end and 0 <= self._newest < steps and self._accountant.allocator.device_type != "cpu":
            with self._guarded:
                self._note_earlier(self.read())
                unread, peak = self._unread_before(steps)
                self._take(_of_step(steps, {}, {}, peak, is_exact=True, unread=unread), -1)
        if self._waiting:
            totals = tuple(self._waiting)
            self._waiting.clear()
            self._emit(StepMemoryMeasured(self._clock.at(), totals[-1].step, totals, self._accountant.allocator.exact))
        for detector in self._detectors.values() if at_end else ():
            if (spike := detector.finish()) is not None:
                self._report(spike)


def _of_step(
    step: int,
    totals: Mapping[Phase, int | None],
    peaks: Mapping[Phase, int | None],
    peak: int | None,
    *,
    is_exact: bool,
    unread: int = 0,
) -> StepTotals:
    forward, backward, optimizer = map(totals.get, PHASES_OF_A_STEP)
    of_forward, of_backward, of_optimizer = map(peaks.get, PHASES_OF_A_STEP)
    return StepTotals(
        step, forward, backward, optimizer, peak, is_exact, of_forward, of_backward, of_optimizer, unread
    )  # fmt: skip


def _highest_phase(totals: StepTotals) -> Phase | None:
    """Return the phase with the highest peak, with the highest total where the peaks are unknown; None for a peak that may be
    of another step."""
    ends = totals.forward, totals.backward, totals.optimizer
    peaks = totals.forward_peak, totals.backward_peak, totals.optimizer_peak
    highest = {phase: max(end or 0, peak or 0) for phase, end, peak in zip(PHASES_OF_A_STEP, ends, peaks)}
    phase = max(highest, key=highest.__getitem__)
    return phase if not totals.unread or highest[phase] == totals.peak else None
