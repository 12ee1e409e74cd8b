"""Measure the device time of a step's phases and of gradtui's own operations by timing events.

Checked on a simulated device only. Operations on a CUDA device run after the host has launched them, so the host's clock gives
launch times. `DeviceTimes` records an event on the device's current stream at each boundary and reads all events of a
step at a later step, once the device has reached the last one. Nothing waits for the device. The time between two events
includes the idle time of the stream. Training thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from time import perf_counter_ns
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.steps.phase_tracker import PhaseTracker
from gradtui.probe.steps.probe_context import ProbeContext
from gradtui.probe.steps.step_counter import OwnDeviceTime
from gradtui.probe.torch_private.cuda import is_capturing
from gradtui.protocol.events import DeviceTimesMeasured
from gradtui.protocol.vocabulary import Phase

_MAX_EVENTS = 1_024
"""The number of timing events that exist at once. A step that needs more is not timed."""
_MAX_UNDER_WAY = 4
"""The number of steps whose events the device has not reached. At this number the next step is not timed."""
_OWN = "own"
_FULL = (Phase.FORWARD, Phase.BACKWARD)
"""Phases in which the host starts so many operations that a device that is slower than the host falls behind it."""
_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass
class _Timed:
    step: int
    device: int
    has_phases: bool
    """Whether the step is sampled: then its phases are timed. Otherwise only gradtui's own operations are."""
    is_exempt: bool
    """Whether the step is sampled regardless of the budget."""
    marks: list[tuple[Phase | str | None, Any]] = field(default_factory=list)
    """What ran since the previous event (a phase, `_OWN`, None for anything else), and the event."""
    ends: int = 0
    """How often a forward or a backward has ended."""
    idle_ends: int = 0
    """Those at which the stream had run all that it had been given."""
    host_ns: int = 0
    """Host time of gradtui's own operations in nanoseconds."""


class DeviceTimes:
    """Times the phases of sampled steps, and gradtui's own operations in every step that has any.

    Only a CUDA device is timed.
    """

    def __init__(self, context: ProbeContext, phases: PhaseTracker) -> None:
        self.is_on = False
        """Whether most of the models' bytes are on a CUDA device."""
        self.newest_excess: dict[bool, float] = {True: 0.0, False: 0.0}
        """Whether a step was sampled -> the newest `OwnDeviceTime.excess` of such a step."""
        self._emit, self._clock = context.emit, context.clock
        self._phases = phases
        self._guarded = context.hooks.guarded("device times")
        self.step = 0
        """The number of the present step."""
        self._own = OwnDeviceTime()
        self.timed: _Timed | None = None
        """The events of the present step; None while nothing of it is timed."""
        self.under_way: deque[_Timed] = deque()
        """Steps whose times have not been read."""
        self._free: dict[int, list[Any]] = {}
        """Device index -> events that can be used again."""
        self._created = 0
        self._device = 0

    def follow(self, home: torch.device) -> None:
        """Set the device that holds most of the models' bytes. Of several, the times are those of its stream."""
        self.is_on, self._device = home.type == "cuda", home.index or 0

    @property
    def device(self) -> int | None:
        """The index of the CUDA device that is timed; None if none is."""
        return self._device if self.is_on else None

    def follow_phases(self, *, is_exempt: bool) -> None:
        """Begin to time the phases of the present step, which is sampled."""
        if self.is_on:
            self._begin(has_phases=True, is_exempt=is_exempt)
        if self.timed is not None:
            with self._guarded:
                self._mark(None)

    def phase_ended(self, phase: Phase) -> None:
        """Record the end of a phase of the present step."""
        if self.timed is not None and self.timed.has_phases:
            # Most of the phase `load` was before the first step, and is not timed.
            with self._guarded:
                self._mark(None if phase is Phase.LOAD else phase)

    def wait_ended(self) -> None:
        """Leave out the time since the last event, in which the script waited for the user."""
        if self.timed is not None and self.timed.has_phases:
            with self._guarded:
                self._mark(None)

    def on_step_post(self) -> None:
        """Close the present step before a command may hold the run."""
        if self.timed is not None:
            with self._guarded:
                if self.timed.has_phases:
                    self._mark(self._phases.phase)
                # `_mark` gives up a step that has too many phases.
                if self.timed is not None:
                    self.under_way.append(self.timed)
                self.poll()
            self.timed = None

    def own(self) -> AbstractContextManager[None]:
        """Return a context manager that times gradtui's own operations on the device."""
        if not self.is_on:
            return _NOTHING
        if self.timed is None:
            self._begin(has_phases=False, is_exempt=False)
        return self._timing_own() if self.timed is not None else _NOTHING

    @contextmanager
    def _timing_own(self) -> Iterator[None]:
        began = perf_counter_ns()
        if self.timed is not None:
            with self._guarded:
                self._mark(self._phases.phase if self.timed.has_phases else None)
        try:
            yield
        finally:
            if self.timed is not None:
                self.timed.host_ns += perf_counter_ns() - began
                with self._guarded:
                    self._mark(_OWN)

    def poll(self) -> None:
        """Read the steps whose last event the device has reached."""
        while self.under_way and not is_capturing():
            if not all(event.query() for _, event in reversed(self.under_way[0].marks)):
                return
            self._read(self.under_way.popleft())

    def take_own(self) -> OwnDeviceTime:
        """Return the time of gradtui's own operations since the last call, as far as it has been read."""
        own, self._own = self._own, OwnDeviceTime()
        return own

    def _begin(self, *, has_phases: bool, is_exempt: bool) -> None:
        if len(self.under_way) < _MAX_UNDER_WAY and not is_capturing():
            self.timed = _Timed(self.step, self._device, has_phases, is_exempt)

    def _mark(self, what: Phase | str | None) -> None:
        timed = self.timed
        if timed is None:
            return
        event = None if is_capturing() else self._event(timed.device)
        if event is None:
            # A graph is being captured, or the step has too many phases.
            self._give_back(timed)
            self.timed = None
            return
        stream = torch.cuda.current_stream(timed.device)
        if what in _FULL:
            # Asked, not waited for. The phase before began with an idle stream, or with one that was behind already.
            timed.ends += 1
            timed.idle_ends += bool(stream.query())
        event.record(stream)
        timed.marks.append((what, event))

    def _event(self, device: int) -> Any | None:
        free = self._free.setdefault(device, [])
        if not free and self._created < _MAX_EVENTS:
            self._created += 1
            return torch.cuda.Event(enable_timing=True)
        return free.pop() if free else None

    def _give_back(self, timed: _Timed) -> None:
        self._free[timed.device] += [event for _, event in timed.marks]

    def _read(self, timed: _Timed) -> None:
        self._give_back(timed)
        seconds: dict[Phase, float] = {}
        own = 0.0
        times = [begin.elapsed_time(end) / 1e3 for (_, begin), (_, end) in zip(timed.marks, timed.marks[1:])]
        if min(times, default=0.0) < 0.0:
            # The script has changed the stream: events of several streams are in no order.
            return
        for (what, _), took in zip(timed.marks[1:], times):
            if isinstance(what, Phase):
                seconds[what] = seconds.get(what, 0.0) + took
            elif what is not None:
                own += took
        excess = max(0.0, own - timed.host_ns / 1e9)
        self.newest_excess[timed.has_phases] = excess
        self._own.device += own
        self._own.excess += excess
        self._own.exempt_excess += excess if timed.is_exempt else 0.0
        if timed.has_phases:
            ends = timed.ends, timed.idle_ends
            self._emit(DeviceTimesMeasured(self._clock.at(), timed.step, tuple(seconds.items()), own, *ends))
