"""Read a device's memory and load from the NVIDIA driver, through `pynvml` (package nvidia-ml-py). Sampler thread.

Checked on a simulated device only (`tests/fake_cuda/nvml.c`).
"""

from __future__ import annotations

import functools
import os
import threading
from time import monotonic
from types import ModuleType
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.probe.samplers.device_identity import DeviceIdentity, find
from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.driver import NvmlTroubleKind as Kind
from gradtui.protocol.samples import DeviceCondition, Throttling

_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)
"""A process that uses both compute and graphics is in two of these lists, with the same figure."""

_UNINITIALISED = 1
_NO_PERMISSION, _NO_SUCH_FUNCTION = 4, 13
_ANSWERS = (2, 3, 4, 6, 13, 25, 26, 28)
"""Codes of errors that are answers: an invalid argument, not supported, no permission, not found, no such function in this
library, another version of a structure, deprecated, no such GPU. Any other (the GPU is lost, no driver, unknown) is a failure
of the driver, after which nothing is known."""
_KINDS = {
    3: Kind.NOT_SUPPORTED, 4: Kind.NO_PERMISSION, 9: Kind.NO_DRIVER, 12: Kind.NO_LIBRARY, 15: Kind.LOST,
    16: Kind.RESET_REQUIRED, 18: Kind.MISMATCH,
}  # fmt: skip
"""What the codes of errors mean."""
_CLOCK_SM, _TEMPERATURE_GPU = 1, 0
_THROTTLING = {
    Throttling.POWER_CAP: 0x4, Throttling.HEAT: 0x20 | 0x40, Throttling.POWER_BRAKE: 0x80, Throttling.SLOWDOWN: 0x8,
}  # fmt: skip
"""Bits of `nvmlClocksEventReasons`. The bit of a slowdown is set beside those of heat in hardware and of a power brake."""
_RECONNECT_S = 30.0
"""Seconds between two attempts to connect: some that fail leave a line in the log of the kernel."""


@dataclass(frozen=True)
class DeviceReading:
    """Sizes in bytes and a load from 0 to 1; None where the driver does not report them."""

    name: str | None = None
    used: int | None = None
    total: int | None = None
    reserved: int | None = None
    """What the driver keeps for itself, which is not in `used`. None in NVML's first version, where `used` contains it."""
    process: int | None = None
    utilisation: float | None = None
    condition: DeviceCondition | None = None
    trouble: NvmlTrouble | None = None
    """Why the memory of the device, or of this process, is unknown."""


class Unanswered(Exception):  # noqa: N818 - it is no error of anybody's here
    """The driver has failed, so the answer is unknown."""

    def __init__(self, trouble: NvmlTrouble) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class ShutDown(Exception):  # noqa: N818 - likewise
    """Other code in this process has shut the library down."""


class Nvml:
    """The connection to the driver, made when it is first needed, and tried again now and then where it fails."""

    def __init__(self, pynvml: ModuleType | None = None) -> None:
        """Read through `pynvml`, which is connected; None for the package, which is not yet."""
        self._pynvml = pynvml
        self._trouble: NvmlTrouble | None = None
        """Why there is no connection."""
        self._connect_at = 0.0
        """The earliest time of the next attempt to connect."""
        self._refusal: int | None = None
        """The code with which the driver has refused the newest question; None if it has answered."""
        self._handles: dict[DeviceIdentity, Any] = {}
        self._names: dict[DeviceIdentity, str] = {}
        """The name of each device, once the driver has reported it. It does not change."""

    @classmethod
    def open(cls) -> Nvml:
        """Return one that has tried to connect."""
        nvml = cls()
        nvml.connect()
        return nvml

    def connect(self) -> NvmlTrouble | None:
        """Connect, unless that is done or has just failed. Return why there is no connection, None if there is one."""
        if self._pynvml is not None or monotonic() < self._connect_at:
            return self._trouble
        self._connect_at = monotonic() + _RECONNECT_S
        try:
            import pynvml

            if hasattr(pynvml, "libLoadLock"):
                _renew_lock_in_children(pynvml)
            pynvml.nvmlInit()
        except ImportError:
            self._trouble = NvmlTrouble(Kind.NO_PACKAGE)
        except Exception as error:  # noqa: BLE001 - no driver, an old one, or no permission: the numbers stay unknown
            self._trouble = _trouble_of(error)
        else:
            self._pynvml, self._trouble = pynvml, None
        return self._trouble

    def read(self, device: DeviceIdentity) -> DeviceReading:
        """Read a device. A figure that the driver refuses is None, even if an earlier reading had it."""
        trouble = self.connect()
        if trouble is not None:
            return DeviceReading(name=self._names.get(device), trouble=trouble)
        try:
            handle = self._handles.get(device)
            if handle is None:
                handle = self._handles[device] = find(device, self.answer)
            if handle is not None:
                return self._read(device, handle)
            trouble = self.refused(Kind.NOT_FOUND)
        except ShutDown:
            # The handles are no longer valid. The next reading connects again.
            self._handles.clear()
            self._pynvml, self._connect_at = None, 0.0
        except Unanswered as failure:
            trouble = failure.trouble
        return DeviceReading(name=self._names.get(device), trouble=trouble)

    def _read(self, device: DeviceIdentity, handle: Any) -> DeviceReading:
        memory, trouble = self.memory(handle)
        process, process_trouble = self._own_bytes(handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return DeviceReading(
            name=self._name(device, handle),
            used=memory.used if memory is not None else None,
            total=memory.total if memory is not None else None,
            reserved=getattr(memory, "reserved", None),
            process=process,
            utilisation=rates.gpu / 100 if rates is not None else None,
            condition=self._condition(handle),
            trouble=trouble or process_trouble,
        )

    def _condition(self, handle: Any) -> DeviceCondition | None:
        power, limit = (self._ask(f"nvmlDeviceGet{name}", handle) for name in ("PowerUsage", "EnforcedPowerLimit"))
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            # Its name until version 535 of the driver.
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        reasons = [reason for reason, mask in _THROTTLING.items() if bits is not None and bits & mask]
        if len(reasons) > 1 and reasons[-1] is Throttling.SLOWDOWN and bits & 0xC0:
            reasons.pop()
        known = DeviceCondition(
            self._ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU),
            power / 1e3 if power is not None else None,
            limit / 1e3 if limit is not None else None,
            self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
            tuple(reasons),
        )
        return known if known != DeviceCondition() else None

    def _name(self, device: DeviceIdentity, handle: Any) -> str | None:
        if device not in self._names:
            name = self._ask("nvmlDeviceGetName", handle)
            if name is None:
                return None
            self._names[device] = name.decode(errors="replace") if isinstance(name, bytes) else name
        return self._names[device]

    def memory(self, handle: Any) -> tuple[Any, NvmlTrouble | None]:
        """Return the totals of the device, or why they are unknown. The second version does not count the driver's own reserve
        as used memory."""
        version = getattr(self._pynvml, "nvmlMemory_v2", None)
        try:
            memory = self.answer("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
            if memory is None and self._refusal != _NO_PERMISSION:
                memory = self.answer("nvmlDeviceGetMemoryInfo", handle)
        except Unanswered as failure:
            return None, failure.trouble  # the first version would count otherwise, for one reading
        return memory, None if memory is not None else self.refused()

    def _own_bytes(self, handle: Any) -> tuple[int | None, NvmlTrouble | None]:
        """Return the memory of this process, or why it is unknown. In a container the driver may know it by another pid."""
        own, listed, failure = os.getpid(), None, None
        for function in _PROCESS_LISTS:
            try:
                found = self.answer(function, handle)
            except Unanswered as failed:
                failure = failed.trouble
                continue
            if found is not None:
                mine = [process.usedGpuMemory for process in found if process.pid == own]
                known = next((used for used in mine if used is not None), None)
                if known is not None:
                    return known, None
                listed = listed or bool(mine)
        return None, failure or NvmlTrouble(Kind.PROCESS_HIDDEN if listed is False else Kind.PROCESS_NOT_REPORTED)

    def refused(self, otherwise: Kind = Kind.NOT_SUPPORTED) -> NvmlTrouble:
        """Return why the newest question got no answer."""
        return NvmlTrouble(Kind.NO_PERMISSION if self._refusal == _NO_PERMISSION else otherwise)

    def _ask(self, function: str, *about: Any) -> Any:
        """Return the driver's answer; None if it refuses or fails."""
        try:
            return self.answer(function, *about)
        except Unanswered:
            return None

    def answer(self, function: str, *about: Any) -> Any:
        """Return the driver's answer; None if it refuses. Raises `Unanswered` if it fails."""
        self._refusal = None
        try:
            return getattr(self._pynvml, function)(*about)
        except AttributeError:
            self._refusal = _NO_SUCH_FUNCTION
            return None  # the package is older than the function
        except Exception as error:
            code = getattr(error, "value", None)
            if code in _ANSWERS:
                self._refusal = code
                return None
            raise (ShutDown() if code == _UNINITIALISED else Unanswered(_trouble_of(error))) from error


def _trouble_of(error: Exception) -> NvmlTrouble:
    """Return what an error of NVML means."""
    code = getattr(error, "value", None)
    return NvmlTrouble(_KINDS[code]) if code in _KINDS else NvmlTrouble(Kind.FAILED, code)


@functools.cache
def _renew_lock_in_children(pynvml: ModuleType) -> None:
    """Give each forked process a lock of its own: the thread that holds pynvml's may not exist there to release it."""

    def renew() -> None:
        pynvml.libLoadLock = threading.Lock()  # type: ignore[attr-defined]

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
