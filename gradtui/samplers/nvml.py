"""Read a device's memory and load from the NVIDIA driver, through `pynvml` (package nvidia-ml-py). Sampler thread.

Tests read from a stub of the library (`tests/samplers/stub_nvml.c`). Not yet confirmed on a device.
"""

from __future__ import annotations

import contextlib
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
"""A process that uses both compute and graphics is in two of these lists, with the same figure."""

_UNINITIALISED = 1
_ANSWERS = (2, 3, 4, 6, 13, 25, 26, 28)
"""Codes of errors that are answers: an invalid argument, not supported, no permission, not found, no such function in this
library, another version of a structure, deprecated, no such GPU. Any other (the GPU is lost, no driver, unknown) is a failure
of the driver, after which nothing is known."""


@dataclass(frozen=True)
class DeviceReading:
    """Sizes in bytes and a load from 0 to 1; None where the driver does not report them."""

    name: str | None = None
    used: int | None = None
    total: int | None = None
    process: int | None = None
    utilisation: float | None = None


class Unanswered(Exception):  # noqa: N818 - it is no error of anybody's here
    """The driver has failed, so the answer is unknown."""


class ShutDown(Exception):  # noqa: N818 - likewise
    """Other code in this process has shut the library down."""


class Nvml:
    """An open connection to the driver."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml
        self._handles: dict[DeviceIdentity, Any] = {}
        self._names: dict[DeviceIdentity, str] = {}
        """The name of each device, once the driver has reported it. It does not change."""

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
        """Read a device. A figure that the driver refuses is None, even if an earlier reading had it."""
        try:
            handle = self._handles.get(device)
            if handle is None:
                handle = self._handles[device] = find(device, self._answer)
            if handle is not None:
                return self._read(device, handle)
        except ShutDown:
            # The handles are no longer valid. The next reading connects again.
            self._handles.clear()
            with contextlib.suppress(Exception):
                self._pynvml.nvmlInit()
        except Unanswered:
            pass
        return DeviceReading(name=self._names.get(device))

    def _read(self, device: DeviceIdentity, handle: Any) -> DeviceReading:
        memory = self._memory(handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return DeviceReading(
            name=self._name(device, handle),
            used=memory.used if memory is not None else None,
            total=memory.total if memory is not None else None,
            process=self._own_bytes(handle),
            utilisation=rates.gpu / 100 if rates is not None else None,
        )

    def _name(self, device: DeviceIdentity, handle: Any) -> str | None:
        if device not in self._names:
            name = self._ask("nvmlDeviceGetName", handle)
            if name is None:
                return None
            self._names[device] = name.decode(errors="replace") if isinstance(name, bytes) else name
        return self._names[device]

    def _memory(self, handle: Any) -> Any:
        """Return the totals of the device. The second version does not count the driver's own reserve as used memory."""
        version = getattr(self._pynvml, "nvmlMemory_v2", None)
        try:
            second = self._answer("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
        except Unanswered:
            return None  # the first version would count otherwise, for one reading
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
        """Return the driver's answer; None if it refuses or fails."""
        try:
            return self._answer(function, *about)
        except Unanswered:
            return None

    def _answer(self, function: str, *about: Any) -> Any:
        """Return the driver's answer; None if it refuses. Raises `Unanswered` if it fails."""
        try:
            return getattr(self._pynvml, function)(*about)
        except AttributeError:
            return None  # the package is older than the function
        except Exception as error:
            code = getattr(error, "value", None)
            if code in _ANSWERS:
                return None
            raise (ShutDown if code == _UNINITIALISED else Unanswered) from error
