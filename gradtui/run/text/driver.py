"""Say which figures of the NVIDIA driver are unknown, why, and what to do. Pure."""

from __future__ import annotations

from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.driver import NvmlTroubleKind as Kind

NVML = "NVML"
"""The name of the driver's library among the parts that failed."""

_CAUSES: dict[Kind, tuple[str, str, str]] = {
    Kind.NO_PACKAGE: ("nvidia-ml-py is not installed", "pip install nvidia-ml-py", "no nvidia-ml-py"),
    Kind.NO_LIBRARY: (
        "libnvidia-ml.so.1 is missing",
        "a container has it with NVIDIA_DRIVER_CAPABILITIES=utility,compute",
        "no libnvidia-ml.so.1",
    ),
    Kind.NO_DRIVER: ("no NVIDIA driver is loaded", "see what nvidia-smi says", "no driver is loaded"),
    Kind.MISMATCH: ("driver/library mismatch, as after an update", "reboot", "mismatch; reboot"),
    Kind.NO_PERMISSION: ("NVML gives no permission to read it", "see who may open /dev/nvidia*", "no permission"),
    Kind.NOT_SUPPORTED: ("NVML does not report it for this device", "torch's figures are complete", "not supported"),
    Kind.NOT_FOUND: (
        "torch's device is not listed",
        "compare CUDA_VISIBLE_DEVICES with nvidia-smi -L",
        "device not listed",
    ),
    Kind.LOST: ("the GPU is lost", "see dmesg for its Xid error, then reset it or reboot", "the GPU is lost"),
    Kind.RESET_REQUIRED: ("the GPU must be reset", "see dmesg for its Xid error", "GPU must be reset"),
    Kind.PROCESS_HIDDEN: (
        "NVML does not list it, as in a container",
        "start it with --pid=host",
        "process hidden",
    ),
    Kind.PROCESS_NOT_REPORTED: (
        "NVML does not report it (WSL, vGPU)",
        "use torch's figures",
        "process unknown",
    ),
    Kind.FAILED: ("NVML fails", "see what nvidia-smi says", "failed"),
}
"""Of each kind: why, what to do, and a few words."""

_UNKNOWN = {
    **dict.fromkeys((Kind.PROCESS_HIDDEN, Kind.PROCESS_NOT_REPORTED), "this process's memory is"),
    **dict.fromkeys((Kind.NO_PERMISSION, Kind.NOT_SUPPORTED), "the device's memory in use is"),
}
"""What is unknown, where it is not all that NVML reports."""


def nvml_trouble_text(trouble: NvmlTrouble) -> str:
    """Return one sentence without its full stop: what is unknown, why, and what to do."""
    return "; ".join(nvml_trouble_parts(trouble))


def nvml_trouble_parts(trouble: NvmlTrouble) -> tuple[str, str]:
    """Return what is unknown and why, and what to do."""
    cause, remedy, _ = _CAUSES[trouble.kind]
    code = f" with error {trouble.code}" if trouble.code is not None else ""
    what = _UNKNOWN.get(trouble.kind, "NVML's figures are")
    return f"{what} unknown: {cause}{code}", remedy


def nvml_trouble_words(trouble: NvmlTrouble) -> str:
    """Return the trouble in at most 26 characters."""
    code = f", error {trouble.code}" if trouble.code is not None else ""
    return f"NVML: {_CAUSES[trouble.kind][2]}{code}"
