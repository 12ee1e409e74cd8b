"""Find the driver's handle of a torch device. Sampler thread. Checked on a simulated device only.

The device indexes of torch and the driver may differ: CUDA_VISIBLE_DEVICES hides and reorders devices, and unless
CUDA_DEVICE_ORDER says otherwise CUDA puts the fastest one first, while the driver's library (NVML) orders devices by their bus
address. The UUID is the same in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gradtui.dataclass import dataclass

Ask = Callable[..., Any]
"""Calls a function of NVML by name. Returns None if the driver refuses. Raises if the driver fails, and the answer is
unknown."""


@dataclass(frozen=True)
class DeviceIdentity:
    """The identity of a device in torch."""

    index: int
    """Its index among the visible devices."""
    uuid: str | None = None
    """Without the driver's prefix: `8932f937-d72c-4106-c12f-20bd9faed9f6`."""
    pci: str | None = None
    """Domain, bus and device, as the driver writes them: `00000000:3B:00.0`."""


def identity(index: int) -> DeviceIdentity:
    """Return the identity of torch's device `index`. Call this only after the script has initialised CUDA, because it would
    initialise CUDA, too."""
    import torch  # late: this process may ask the driver without torch

    known = torch.cuda.get_device_properties(index)
    uuid = getattr(known, "uuid", None)
    place: list[Any] = [getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    pci = None if None in place else "{:08X}:{:02X}:{:02X}.0".format(*place)
    return DeviceIdentity(index, str(uuid) if uuid is not None else None, pci)


def find(device: DeviceIdentity, ask: Ask) -> Any:
    """Return the driver's handle of a device, None if the device cannot be identified. Raises what `ask` raises.

    If the GPU is divided (MIG), the handle is that of the instance: the process can use only the memory of the instance.
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
    # If no instance of a divided GPU is named, CUDA uses the first one.
    indices = range(ask("nvmlDeviceGetMaxMigDeviceCount", whole) or 0)
    instances = (ask("nvmlDeviceGetMigDeviceHandleByIndex", whole, index) for index in indices)
    return next((instance for instance in instances if instance is not None), None)


def _by_name(device: DeviceIdentity, ask: Ask) -> Any:
    if device.uuid is not None:
        for prefix in ("GPU-", "MIG-"):
            handle = ask("nvmlDeviceGetHandleByUUID", prefix + device.uuid)
            if handle is not None:
                return handle
    return ask("nvmlDeviceGetHandleByPciBusId", device.pci) if device.pci is not None else None


def _by_number(device: DeviceIdentity, entry: str, ask: Ask) -> Any:
    """Find the handle by the index alone, if torch and the driver count alike."""
    if entry and not entry.isdigit():
        return ask("nvmlDeviceGetHandleByUUID", entry)
    if os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and ask("nvmlDeviceGetCount") != 1:
        return None
    return ask("nvmlDeviceGetHandleByIndex", int(entry) if entry else device.index)


def _visible_entry(index: int) -> str:
    """Return the entry of CUDA_VISIBLE_DEVICES for the process's device `index`; empty if there is none."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return visible[index] if index < len(visible) else ""
