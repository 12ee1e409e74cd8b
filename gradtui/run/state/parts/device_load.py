"""How busy the models' device and the host were while the run trained, and what slowed the device down. Pure."""

from __future__ import annotations

from dataclasses import field

from gradtui.dataclass import dataclass
from gradtui.protocol.events import DeviceCondition, DeviceSampled, HostLoad, Throttling

_MIN_SAMPLES = 3
_LONGEST_S = 5.0
"""Seconds between two samples that count at most: the thread that samples may have been held up."""
_MIN_ENDS, _MOSTLY = 8, 0.8
IDLE = 0.4
"""The share of the time for which a device computes nothing from which the host holds it up."""


@dataclass
class Mean:
    """A mean of values that each held for some seconds."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        """Add a value; None if it is unknown."""
        if value is not None:
            self.total += value * seconds
            self.seconds += seconds

    @property
    def value(self) -> float | None:
        """The mean; None without a value."""
        return self.total / self.seconds if self.seconds else None


@dataclass
class DeviceLoad:
    """Sums of the samples since the first step has ended: of the CUDA device that holds most of the models, and of the host."""

    samples: int = 0
    """Those with a utilisation."""
    busy: Mean = field(default_factory=Mean)
    """Of the utilisation, 0 to 1."""
    power: Mean = field(default_factory=Mean)
    hottest: int | None = None
    newest: DeviceCondition | None = None
    seconds: float = 0.0
    """For which the condition of the device is known."""
    throttled: dict[Throttling, float] = field(default_factory=dict)
    """For how many seconds each of these slowed the device down while it computed."""
    slow_clocks: dict[Throttling, Mean] = field(default_factory=dict)
    """The clock in that time, as a share of the highest."""
    ends: int = 0
    """Ends of a forward or a backward on the host, in sampled steps."""
    idle_ends: int = 0
    """Those at which the device had run all that the host had started."""
    cores_used: Mean = field(default_factory=Mean)
    page_faults: Mean = field(default_factory=Mean)
    swapped_in: Mean = field(default_factory=Mean)
    host: HostLoad | None = None
    """The newest."""
    _at: float | None = None

    def add(self, sample: DeviceSampled) -> None:
        """Add a sample."""
        before, self._at = self._at, sample.at
        if sample.step <= 0 or before is None:
            return
        seconds = min(_LONGEST_S, max(0.0, sample.at - before))
        self.samples += sample.utilisation is not None
        self.busy.add(sample.utilisation, seconds)
        if sample.condition is not None:
            self._add(sample.condition, seconds, is_busy=sample.utilisation != 0.0)
        if sample.host is not None:
            self.host = sample.host
            self.cores_used.add(sample.host.cores_used, seconds)
            self.page_faults.add(sample.host.page_faults, seconds)
            self.swapped_in.add(sample.host.swapped_in, seconds)

    def _add(self, condition: DeviceCondition, seconds: float, *, is_busy: bool) -> None:
        self.newest = condition
        self.seconds += seconds
        self.power.add(condition.power, seconds)
        if condition.temperature is not None:
            self.hottest = max(condition.temperature, self.hottest or 0)
        for reason in condition.throttling if is_busy else ():
            self.throttled[reason] = self.throttled.get(reason, 0.0) + seconds
            if condition.clock is not None and condition.highest_clock:
                clocks = self.slow_clocks.setdefault(reason, Mean())
                clocks.add(condition.clock / condition.highest_clock, seconds)

    @property
    def waits_for_host(self) -> bool | None:
        """Whether the device has less to do than the host can start; None if that is unknown, as on the CPU.

        Where NVML does not say how long it computes, the ends of forward and backward do.
        """
        if self.idle is not None:
            return self.idle >= IDLE
        return self.idle_ends >= _MOSTLY * self.ends if self.ends >= _MIN_ENDS else None

    @property
    def idle(self) -> float | None:
        """The share of the time in which the device ran no kernel, of any process; None where that is unknown."""
        busy = self.busy.value
        return 1 - busy if busy is not None and self.samples >= _MIN_SAMPLES else None
