"""NVML without a driver: pynvml's own structures and errors, from functions of its names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pynvml


@dataclass
class Gpu:
    """What the driver tells of one device; None is refused as the driver refuses it."""

    name: str | bytes | None = None
    used: int | None = None
    total: int = 0
    reserved: int = 0
    """By the driver for itself: among `used` in the first version of the structure, apart in the second."""
    load: int | None = None
    processes: list[tuple[int, int | None]] | None = None
    """(pid, bytes) of those that compute; None for bytes that are not available."""
    drawing: list[tuple[int, int | None]] | None = None
    served: list[tuple[int, int | None]] | None = None
    """Clients of the multi-process service."""
    mig: bool | None = None
    instances: list[str | None] = field(default_factory=list)
    """Names of the instances it is divided into; None for a place that is empty."""
    pci: str = ""
    condition: dict[str, int] = field(default_factory=dict)
    """By the function of NVML, without `nvmlDeviceGet`: what it returns."""


class FakeDriver:
    """Devices by their UUIDs, in the order of the bus. An instance of a divided GPU is a device of its own."""

    def __init__(self, gpus: dict[str, Gpu], *, second_version: bool = True) -> None:
        self.gpus = gpus
        self.lost = False
        """Every further call fails, as after an error of the device."""
        self.asked: list[str] = []
        self._second_version = second_version

    def module(self) -> ModuleType:
        """What stands in for pynvml."""
        functions = {name: getattr(self, name) for name in dir(self) if name.startswith("nvml")}
        names = SimpleNamespace(NVMLError=pynvml.NVMLError, **{n: self._noted(n, f) for n, f in functions.items()})
        if self._second_version:
            names.nvmlMemory_v2 = pynvml.nvmlMemory_v2
        return cast("ModuleType", names)

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self.asked.append(name)
            if self.lost:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            return function(*arguments)

        return called

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return sum(1 for name in self.gpus if name.startswith("GPU-"))

    def nvmlDeviceGetHandleByUUID(self, name: str) -> Gpu:  # noqa: N802
        if name not in self.gpus:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.gpus[name]

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> Gpu:  # noqa: N802
        return next((gpu for gpu in self.gpus.values() if gpu.pci == bus_id), None) or _refused()

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:  # noqa: N802
        whole = [gpu for name, gpu in self.gpus.items() if name.startswith("GPU-")]
        if index >= len(whole):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return whole[index]

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:  # noqa: N802
        return _refused() if gpu.mig is None else [int(gpu.mig), int(gpu.mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:  # noqa: N802
        return len(gpu.instances)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:  # noqa: N802
        name = gpu.instances[index]
        if name is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.gpus[name]

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu, version: int | None = None) -> Any:  # noqa: N802
        if gpu.used is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        if version is None:
            used = gpu.used + gpu.reserved
            return pynvml.c_nvmlMemory_t(total=gpu.total, free=max(0, gpu.total - used), used=used)
        if not self._second_version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return pynvml.c_nvmlMemory_v2_t(version=version, total=gpu.total, reserved=gpu.reserved, used=gpu.used)

    def nvmlDeviceGetUtilizationRates(self, gpu: Gpu) -> Any:  # noqa: N802
        return _refused() if gpu.load is None else pynvml.c_nvmlUtilization_t(gpu=gpu.load, memory=0)

    def nvmlDeviceGetTemperature(self, gpu: Gpu, _sensor: int) -> int:  # noqa: N802
        return gpu.condition.get("Temperature") or _refused()

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:  # noqa: N802
        return gpu.condition.get("PowerUsage") or _refused()

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Gpu) -> int:  # noqa: N802
        return gpu.condition.get("EnforcedPowerLimit") or _refused()

    def nvmlDeviceGetClockInfo(self, gpu: Gpu, _kind: int) -> int:  # noqa: N802
        return gpu.condition.get("ClockInfo") or _refused()

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: Gpu) -> int:  # noqa: N802
        """The name until version 535: the other one is a function that the driver's library does not have."""
        return gpu.condition.get("Reasons") or _refused()

    def nvmlDeviceGetName(self, gpu: Gpu) -> str | bytes:  # noqa: N802
        return _refused() if gpu.name is None else gpu.name

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:  # noqa: N802
        return _processes(gpu.processes)

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: Gpu) -> list[Any]:  # noqa: N802
        return _processes(gpu.drawing)

    def nvmlDeviceGetMPSComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:  # noqa: N802
        return _processes(gpu.served)


def _refused() -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _processes(known: list[tuple[int, int | None]] | None) -> list[Any]:
    """As pynvml returns them: the structure's fields as attributes, a figure that is not available as None."""
    if known is None:
        return cast("list[Any]", _refused())
    found = []
    for pid, used in known:
        struct = pynvml.c_nvmlProcessInfo_v3_t(pid=pid, usedGpuMemory=used or 0)
        friendly = pynvml.nvmlStructToFriendlyObject(struct)
        friendly.usedGpuMemory = used
        found.append(friendly)
    return found
