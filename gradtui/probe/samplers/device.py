"""Sample memory and load of the host and, if there is one, of the CUDA device. Sampler thread.

The counters of torch's caching allocator may be read on any thread; that does not synchronise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch

from gradtui.dataclass import dataclass
from gradtui.probe.samplers.device_identity import identity
from gradtui.probe.samplers.host_load import HostLoadReader
from gradtui.probe.samplers.nvml import DeviceReading, Nvml
from gradtui.protocol.driver import NvmlTrouble, NvmlTroubleKind
from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.system.host_memory import machine_memory, resident_bytes

_PERIOD_S, _UNTIL_CUDA_S = 1.0, 0.25


@dataclass(frozen=True)
class AllocatorReading:
    """Current and peak bytes; None where the allocator does not report them.

    `requested` are the requested bytes, `allocated` the blocks allocated for them (rounded up), `reserved` the memory reserved
    from the driver. The peaks are those that the script would read.
    """

    requested: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    requested_peak: int | None = None
    allocated_peak: int | None = None
    reserved_peak: int | None = None


def read_allocator(index: int) -> AllocatorReading:
    """Read the counters of the device with torch's index `index`. Checked on a simulated device only."""
    try:
        stats = torch.cuda.memory_stats_as_nested_dict(index)
    except RuntimeError:
        # Another allocator replaced it (`change_current_allocator`), and keeps no statistics.
        return AllocatorReading()
    requested, allocated, reserved = (counter(stats, name) for name in ("requested", "allocated", "reserved"))
    if counts_no_requests(stats):
        requested = {}
    return AllocatorReading(
        *(each.get("current") for each in (requested, allocated, reserved)),
        *(each.get("peak") for each in (requested, allocated, reserved)),
    )


def counter(stats: dict[str, Any], kind: str, pool: str = "all") -> dict[str, int]:
    """Return one counter of a device's nested statistics: `current`, `peak`, `allocated`, `freed`."""
    found: dict[str, int] = stats.get(f"{kind}_bytes", {}).get(pool, {})
    return found


def counts_no_requests(stats: dict[str, Any]) -> bool:
    """Return whether the backend is `cudaMallocAsync`, which leaves the counter of requested bytes at zero."""
    return not counter(stats, "requested").get("peak") and bool(counter(stats, "allocated").get("peak"))


class DeviceSampler:
    """Samples the host memory of this process, and the allocator's totals and NVML's readings of the CUDA devices it uses.

    `index` returns torch's index of the device that holds most of the models.
    """

    def __init__(self, at: Callable[[], float], step: Callable[[], int], index: Callable[[], int]) -> None:
        self._at = at
        self._step = step
        self._index = index
        self._host = HostLoadReader()
        self._nvml = Nvml()
        # A short run should have a reading of its device too. A build without CUDA never has one.
        self.period_s = _UNTIL_CUDA_S if torch.backends.cuda.is_built() else _PERIOD_S

    def sample(self) -> DeviceSampled:
        """Return one reading. It does not use the driver and NVML until the script itself has initialised CUDA.

        `torch.cuda.is_available` would run `cuInit`, which fixes the devices before the script sets `CUDA_VISIBLE_DEVICES`, and
        breaks CUDA in children that the script forks.
        """
        index: int | None = None
        others: tuple[DeviceFigures, ...] = ()
        home = _figures(AllocatorReading(), DeviceReading())
        if torch.cuda.is_initialized():
            self.period_s = _PERIOD_S
            index = self._index()
            # Read the allocator first: memory reserved in between is then in the driver's figure, never missing there.
            allocator = read_allocator(index)
            device = self._driver(index)
            device = replace(device, trouble=_known(device.trouble, allocator))
            home, others = _figures(allocator, device), tuple(self._others(index))
        host = machine_memory()
        return DeviceSampled(
            at=self._at(),
            step=self._step(),
            host_rss=resident_bytes(),
            host_total=host.total,
            host_available=host.available,
            index=index,
            others=others,
            host=self._host.read(),
            **(home | {"source": home["source"] or "host"}),
        )

    def _driver(self, index: int) -> DeviceReading:
        """Read NVML. If torch cannot identify the device, nothing is known of it."""
        with suppress(RuntimeError, AssertionError):
            return self._nvml.read(identity(index)) if torch.version.hip is None else DeviceReading()
        return DeviceReading()

    def _others(self, home: int) -> Iterator[DeviceFigures]:
        """Read each other device of which torch has reserved memory. No context is made on those that it does not use."""
        for index in range(torch.cuda.device_count()):
            allocator = read_allocator(index) if index != home else AllocatorReading()
            if allocator.reserved:
                yield DeviceFigures(index=index, **_figures(allocator, self._driver(index)))


def _figures(allocator: AllocatorReading, device: DeviceReading) -> dict[str, Any]:
    """Return the figures of one device by their names in `DeviceFigures`."""
    return {
        "source": device.name or "",
        "device_used": device.used,
        "device_total": device.total,
        "driver_reserved": device.reserved,
        "device_process": device.process,
        "utilisation": device.utilisation,
        "trouble": device.trouble,
        "condition": device.condition,
        **asdict(allocator),
    }


def _known(trouble: NvmlTrouble | None, allocator: AllocatorReading) -> NvmlTrouble | None:
    """Return the trouble with the driver. A process that has no memory of the device need not be listed."""
    is_early = trouble is not None and trouble.kind is NvmlTroubleKind.PROCESS_HIDDEN and not allocator.reserved
    return None if is_early else trouble
