"""The CUDA devices that the run uses: the one that holds most of the models' bytes, and all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.device_memory import DeviceMemory
from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.events import DeviceFigures, DeviceSampled
from gradtui.run.state.run_state import RunState

_NAMED = ("index", "source", "utilisation", "trouble", "condition")
"""The fields of a device that are no bytes."""


@dataclass(frozen=True)
class FullestDevice:
    """The device that is nearest to its limit, of several that hold the models."""

    index: int
    bytes: int
    """Its highest total of tensors; the one at the end where no allocator keeps peaks."""
    capacity: int | None
    """The bytes of the device that processes can have; None where the driver does not say them of every device."""


def fullest_device(devices: Sequence[DeviceMemory], sample: DeviceSampled | None) -> FullestDevice | None:
    """Return the device with the largest share of its memory in use, or with most bytes where the sizes are unknown.

    None for a single device, or if nothing is known.
    """
    sizes = {device.index: capacity(device) for device in cuda_devices(sample)}
    found = []
    for each in devices:
        size = each.total if each.peak is None else each.peak
        if size is None:
            return None
        found.append(FullestDevice(each.index, size, sizes.get(each.index)))
    if any(not each.capacity for each in found):
        found = [replace(each, capacity=None) for each in found]
    return max(found, key=lambda each: each.bytes / (each.capacity or 1)) if len(found) > 1 else None


def cuda_devices(sample: DeviceSampled | None) -> tuple[DeviceFigures, ...]:
    """Return the CUDA devices in use, by index; empty if there is none."""
    if sample is None or sample.reserved is None:
        return ()
    first = DeviceFigures(
        **{each.name: getattr(sample, each.name) for each in fields(DeviceFigures) if each.name != "index"},
        index=sample.index or 0,
    )
    return tuple(sorted((first, *sample.others), key=lambda device: device.index))


def capacity(device: DeviceSampled | DeviceFigures) -> int | None:
    """Return the bytes of a device that processes can have, as `cudaMemGetInfo` and torch's `total_memory` say them.

    That is NVML's total without what the driver keeps for itself. Where that reserve is unknown, it is the whole total.
    """
    return None if device.device_total is None else device.device_total - (device.driver_reserved or 0)


def models_capacity(state: RunState) -> int | None:
    """Return the capacity of the devices that hold the models; None if one of them is unknown."""
    sizes = {device.index: capacity(device) for device in cuda_devices(state.device)}
    indexes = [each.index for each in state.step_memory.devices]
    if not indexes:
        return capacity(state.device) if state.device is not None else None
    known = [size for size in map(sizes.get, indexes) if size is not None]
    return sum(known) if len(known) == len(indexes) else None


def sum_of(devices: tuple[DeviceFigures, ...]) -> DeviceFigures:
    """Add up the bytes of devices: None where one of them is unknown. Peaks are of no moment in common, so they are None."""
    sums: dict[str, Any] = {}
    for each in fields(DeviceFigures):
        if each.name not in _NAMED:
            sizes = [getattr(device, each.name) for device in devices]
            sums[each.name] = None if None in sizes or each.name.endswith("_peak") else sum(sizes)
    return DeviceFigures(index=-1, source="", utilisation=None, trouble=_first_trouble(devices), **sums)


def named_devices(devices: tuple[DeviceFigures, ...], most: int) -> list[tuple[str, DeviceFigures]]:
    """Return at most so many devices with their names: each, or the sum of all and the fullest. A single one has no name."""
    names = {device.index: f"cuda:{device.index}" if len(devices) > 1 else "" for device in devices}
    if len(devices) <= most:
        return [(names[device.index], device) for device in devices]
    fullest = _fullest_first(devices)
    every = (f"{len(devices)} devices", sum_of(devices))
    return [every, *((names[device.index], device) for device in fullest[: most - 1])]


def nearest_to_its_limit(sample: DeviceSampled | None) -> int | None:
    """Return the index of the device with the largest share of its memory in use, by any process; None for a single one."""
    devices = cuda_devices(sample)
    return _fullest_first(devices)[0].index if len(devices) > 1 else None


def _fullest_first(devices: Sequence[DeviceFigures]) -> list[DeviceFigures]:
    """Sort devices by the share of their memory that is in use, or by the bytes of this process if a share is unknown."""
    sizes = [capacity(device) for device in devices]
    shares = [
        device.device_used / size if device.device_used is not None and size else None
        for device, size in zip(devices, sizes)
    ]
    known = {device.index: share for device, share in zip(devices, shares) if share is not None}
    if len(known) == len(devices):
        return sorted(devices, key=lambda device: known[device.index], reverse=True)
    return sorted(devices, key=lambda device: device.device_process or device.reserved or 0, reverse=True)


def device_trouble(sample: DeviceSampled | None) -> NvmlTrouble | None:
    """Return why figures of the driver are unknown: of the models' device, else of the first other one."""
    if sample is None:
        return None
    return sample.trouble or _first_trouble(sample.others)


def _first_trouble(devices: tuple[DeviceFigures, ...]) -> NvmlTrouble | None:
    return next((device.trouble for device in devices if device.trouble is not None), None)
