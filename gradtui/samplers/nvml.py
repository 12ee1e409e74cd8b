"""What the NVIDIA driver says of a device, through `pynvml` (package nvidia-ml-py). No device has confirmed this yet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any


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

    @classmethod
    def open(cls) -> Nvml | None:
        """Connect; None without a driver or without the package."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - no driver, an old one, or no permission: the numbers stay unknown
            return None
        return cls(pynvml)

    def read(self, index: int) -> DeviceReading:
        """Read the device that torch calls `index`. A figure that the driver refuses stays None."""
        handle = self._handle(_visible_name(index))
        if handle is None:
            return DeviceReading()
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        name = self._ask("nvmlDeviceGetName", handle)
        return DeviceReading(
            name=name.decode() if isinstance(name, bytes) else name,
            used=memory.used if memory is not None else None,
            total=memory.total if memory is not None else None,
            process=self._own_bytes(handle),
            utilisation=rates.gpu / 100 if rates is not None else None,
        )

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._ask("nvmlDeviceGetHandleByIndex", int(name))
        return self._ask("nvmlDeviceGetHandleByUUID", name)

    def _own_bytes(self, handle: Any) -> int | None:
        # In a container the driver may know this process under another pid; then the figure is unknown.
        for process in self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ():
            if process.pid == os.getpid():
                used: int | None = process.usedGpuMemory
                return used
        return None

    def _ask(self, function: str, about: Any) -> Any:
        try:
            return getattr(self._pynvml, function)(about)
        except (self._pynvml.NVMLError, AttributeError):
            return None


def _visible_name(index: int) -> str:
    """The number or UUID by which the driver knows the device that this process sees as `index`."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return visible[index] if index < len(visible) and visible[index] else str(index)
