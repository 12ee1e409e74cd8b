"""What the sampler thread reads at fixed intervals: the phase of the training thread, and the memory and load of devices."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass
from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.measurements import Measurement
from gradtui.protocol.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class PhaseSampled(Measurement):
    """The phase of the training thread when the sampler thread read it."""

    phase: Phase


class Throttling(str, Enum):
    """What keeps a device below its clock (`nvmlClocksEventReasons` of NVML), other than having nothing to do."""

    POWER_CAP = "power cap"
    """The driver keeps the device within its power limit. Many devices reach it under full load."""
    HEAT = "heat"
    """The driver, or the device itself, keeps it from becoming too hot."""
    POWER_BRAKE = "power brake"
    """The machine tells the device to take less power, as a failing power supply does."""
    SLOWDOWN = "slowdown"
    """The device has slowed itself down to half of its clock or less, and does not say why."""

    __str__ = str.__str__
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """Temperature (°C), power (watts) and clock (MHz, of the multiprocessors) of a device; None where NVML does not tell."""

    temperature: int | None = None
    power: float | None = None
    power_limit: float | None = None
    clock: int | None = None
    highest_clock: int | None = None
    throttling: tuple[Throttling, ...] = ()


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What the process had of the host since the sample before."""

    cores_used: float
    """Its CPU time divided by the time: 2.0 for two busy cores. That of its children is not included."""
    cores: int
    """The cores that it may use: by its affinity, and by the quota of its control group."""
    page_faults: float
    """Pages a second that it waited for until they were read from a disk."""
    swapped_in: float
    """Bytes a second that all processes have read back from swap space; 0 where that is unknown."""
    swapped: int
    """Bytes of the process in swap space; 0 where that is unknown."""
    held_up: float = 0.0
    """The share of the time in which its main thread could have run, and others had the cores; 0 where that is unknown."""


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """The figures of one CUDA device, with the names and meanings that they have in `DeviceSampled`."""

    index: int
    source: str
    device_used: int | None
    device_total: int | None
    device_process: int | None
    allocated: int | None
    reserved: int | None
    utilisation: float | None
    requested: int | None
    requested_peak: int | None
    allocated_peak: int | None
    reserved_peak: int | None
    trouble: NvmlTrouble | None
    driver_reserved: int | None = None
    condition: DeviceCondition | None = None


@dataclass(frozen=True, slots=True)
class DeviceSampled(Measurement):
    """Numbers that the sampler thread reads at fixed intervals; None where the machine does not report them.

    Sizes are in bytes; `utilisation` is a fraction of 1. `device_process` is what this process holds according to the driver,
    `device_used` what all processes hold of the `device_total`. `requested`, `allocated` and `reserved` come from the allocator
    of the same device: the requested bytes, the blocks allocated for them, and the memory reserved from the driver. Their peaks
    are those that the script would read.
    """

    source: str
    host_rss: int | None
    host_total: int | None
    device_used: int | None
    device_total: int | None
    device_process: int | None
    allocated: int | None
    reserved: int | None
    utilisation: float | None
    requested: int | None = None
    requested_peak: int | None = None
    allocated_peak: int | None = None
    reserved_peak: int | None = None
    host_available: int | None = None
    """Host memory that programs can have without swapping (psutil: `virtual_memory().available`). A limit of a container below
    that is not known."""
    trouble: NvmlTrouble | None = None
    """Why the driver's figures, or that of this process, are None although torch uses the device."""
    index: int | None = None
    """Torch's index of the CUDA device, which holds most of the models' bytes; None while none is in use."""
    others: tuple[DeviceFigures, ...] = ()
    """The other CUDA devices of which torch has reserved memory in this process."""
    driver_reserved: int | None = None
    """The part of `device_total` that the driver keeps for itself and no process can have. None where only NVML's first version
    answers, whose `device_used` contains it, and in older recordings."""
    condition: DeviceCondition | None = None
    """None where NVML tells nothing of it."""
    host: HostLoad | None = None
    """None in the first sample."""
