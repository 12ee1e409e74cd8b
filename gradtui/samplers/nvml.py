"""What the NVIDIA driver says of a device, through `pynvml` (package nvidia-ml-py). Sampler thread.

No device has confirmed this yet.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gradtui.samplers.device_identity import DeviceIdentity, find

_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)
"""A process that computes and draws is in two of them, with the same figure."""


@dataclass(frozen=True)
class DeviceReading:
    """Bytes and a load of 0 to 1; None where the driver does not tell."""

    name: str | None = None
    used: int | None = None
    total: int | None = None
    process: int | None = None
    utilisation: float | None = None


class Nvml:
    """An open connection to the driver."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml
        self._handles: dict[DeviceIdentity, Any] = {}

    @classmethod
    def open(cls) -> Nvml | None:
        """Connect; None without a driver or without the package."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - no driver, an old one, or no permission: the numbers stay unknown
            return None
        return cls(pynvml)

    def read(self, device: DeviceIdentity) -> DeviceReading:
        """Read a device. A figure that the driver refuses stays None, also one that it has told before."""
        handle = self._handles.get(device)
        if handle is None:
            handle = self._handles[device] = find(device, self._ask)
        if handle is None:
            return DeviceReading()
        memory = self._memory(handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        name = self._ask("nvmlDeviceGetName", handle)
        return DeviceReading(
            name=name.decode() if isinstance(name, bytes) else name,
            used=memory.used if memory is not None else None,
            total=memory.total if memory is not None else None,
            process=self._own_bytes(handle),
            utilisation=rates.gpu / 100 if rates is not None else None,
        )

    def _memory(self, handle: Any) -> Any:
        """Totals of the device: in the second version what the driver reserves for itself is not among what is used."""
        version = getattr(self._pynvml, "nvmlMemory_v2", None)
        second = self._ask("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
        return second if second is not None else self._ask("nvmlDeviceGetMemoryInfo", handle)

    def _own_bytes(self, handle: Any) -> int | None:
        # In a container the driver may know this process under another pid; then the figure is unknown.
        own = os.getpid()
        for function in _PROCESS_LISTS:
            for process in self._ask(function, handle) or ():
                used: int | None = process.usedGpuMemory
                if process.pid == own and used is not None:
                    return used
        return None

    def _ask(self, function: str, *about: Any) -> Any:
        try:
            return getattr(self._pynvml, function)(*about)
        except Exception:  # noqa: BLE001 - a refusal, a device that is gone, a library older than the package: no figure
            return None
