"""The CUDA devices that the run uses: the one that holds most of the models' bytes, and all of them. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.events import DeviceFigures, DeviceSampled

_NAMED = ("index", "source", "utilisation", "trouble")
"""The fields of a device that are no bytes."""


def cuda_devices(sample: DeviceSampled | None) -> tuple[DeviceFigures, ...]:
    """Return the CUDA devices in use, by index; empty if there is none."""
    if sample is None or sample.reserved is None:
        return ()
    first = DeviceFigures(
        **{each.name: getattr(sample, each.name) for each in fields(DeviceFigures) if each.name != "index"},
        index=sample.index or 0,
    )
    return tuple(sorted((first, *sample.others), key=lambda device: device.index))


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
    fullest = sorted(devices, key=lambda device: device.device_process or device.reserved or 0, reverse=True)
    every = (f"{len(devices)} devices", sum_of(devices))
    return [every, *((names[device.index], device) for device in fullest[: most - 1])]


def device_trouble(sample: DeviceSampled | None) -> NvmlTrouble | None:
    """Return why figures of the driver are unknown: of the models' device, else of the first other one."""
    if sample is None:
        return None
    return sample.trouble or _first_trouble(sample.others)


def _first_trouble(devices: tuple[DeviceFigures, ...]) -> NvmlTrouble | None:
    return next((device.trouble for device in devices if device.trouble is not None), None)
