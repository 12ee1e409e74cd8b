"""Finding the device that torch means among those that the driver knows. Sampler thread. Not yet confirmed on a device.

The numbers of the two need not agree: CUDA_VISIBLE_DEVICES hides and reorders devices, and unless CUDA_DEVICE_ORDER says
otherwise CUDA puts the fastest one first, while the driver's library (NVML) goes by the place on the bus. The UUID is the same
in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Ask = Callable[..., Any]
"""Calls a function of NVML by name; None where the driver refuses. Raises where the driver fails, so that nothing is known."""


@dataclass(frozen=True)
class DeviceIdentity:
    """What torch knows of a device."""

    index: int
    """Among the visible ones."""
    uuid: str | None = None
    """Without the driver's prefix: `8932f937-d72c-4106-c12f-20bd9faed9f6`."""
    pci: str | None = None
    """Domain, bus and device, as the driver writes them: `00000000:3B:00.0`."""


def identity(index: int) -> DeviceIdentity:
    """What torch knows of the device it calls `index`. Only where the script has initialised CUDA: this would do it, too."""
    known = torch.cuda.get_device_properties(index)
    uuid = getattr(known, "uuid", None)
    domain, bus, slot = (getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    pci = (
        f"{domain:08X}:{bus:02X}:{slot:02X}.0" if domain is not None and bus is not None and slot is not None else None
    )
    return DeviceIdentity(index, str(uuid) if uuid is not None else None, pci)


def find(device: DeviceIdentity, ask: Ask) -> Any:
    """The driver's handle of a device, None if it cannot be told which one it is. Raises what `ask` raises.

    Where the GPU is divided (MIG) it is that of the instance: its memory is all that the process can have.
    """
    entry = _visible_entry(device.index)
    whole = _by_name(device, ask)
    if whole is None:
        return ask("nvmlDeviceGetHandleByUUID", entry) if entry.startswith("MIG-") else _by_number(device, entry, ask)
    mode = ask("nvmlDeviceGetMigMode", whole)
    if not mode or mode[0] != 1:
        return whole
    if entry.startswith("MIG-"):
        return ask("nvmlDeviceGetHandleByUUID", entry)
    # Of a divided GPU that is not told apart CUDA takes the first instance.
    places = range(ask("nvmlDeviceGetMaxMigDeviceCount", whole) or 0)
    instances = (ask("nvmlDeviceGetMigDeviceHandleByIndex", whole, place) for place in places)
    return next((instance for instance in instances if instance is not None), None)


def _by_name(device: DeviceIdentity, ask: Ask) -> Any:
    if device.uuid is not None:
        for prefix in ("GPU-", "MIG-"):
            handle = ask("nvmlDeviceGetHandleByUUID", prefix + device.uuid)
            if handle is not None:
                return handle
    return ask("nvmlDeviceGetHandleByPciBusId", device.pci) if device.pci is not None else None


def _by_number(device: DeviceIdentity, entry: str, ask: Ask) -> Any:
    """By the number alone, where both count alike."""
    if entry and not entry.isdigit():
        return ask("nvmlDeviceGetHandleByUUID", entry)
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and ask("nvmlDeviceGetCount") != 1:
        return None
    return ask("nvmlDeviceGetHandleByIndex", int(entry) if entry else device.index)


def _visible_entry(index: int) -> str:
    """What CUDA_VISIBLE_DEVICES says of the device that this process sees as `index`; empty if nothing."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return visible[index] if index < len(visible) else ""
