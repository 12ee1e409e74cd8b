"""Why figures of the NVIDIA driver are unknown."""

from __future__ import annotations

from enum import Enum

from gradtui.dataclass import dataclass


class NvmlTroubleKind(str, Enum):
    """What keeps the driver's library (NVML) from reporting all figures of a device."""

    NO_PACKAGE = "no package"
    """The Python package that reads NVML is not installed."""
    NO_LIBRARY = "no library"
    NO_DRIVER = "no driver"
    """No kernel module of NVIDIA is loaded."""
    MISMATCH = "mismatch"
    """The kernel module and the library have different versions."""
    NO_PERMISSION = "no permission"
    NOT_SUPPORTED = "not supported"
    """The device does not report its memory."""
    NOT_FOUND = "not found"
    """NVML does not list the device that torch uses, or it is unknown which one that is."""
    LOST = "lost"
    RESET_REQUIRED = "reset required"
    PROCESS_HIDDEN = "process hidden"
    """NVML does not list this process. The figures of the device are known."""
    PROCESS_NOT_REPORTED = "process not reported"
    """NVML does not report the memory of this process. The figures of the device are known."""
    FAILED = "failed"
    """NVML has failed with another error."""

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class NvmlTrouble:
    """Why figures of the NVIDIA driver are unknown."""

    kind: NvmlTroubleKind
    code: int | None = None
    """The error of NVML, if it is one that `kind` does not name."""
