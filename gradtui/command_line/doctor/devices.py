"""torch with its build, and the devices as torch and as the NVIDIA driver see them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gradtui.command_line.doctor.child import Child
from gradtui.command_line.doctor.page import Lack, Part
from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.driver import NvmlTroubleKind as Kind
from gradtui.run.text.driver import nvml_trouble_parts, nvml_trouble_text
from gradtui.run.text.units import plural, short_bytes

Answer = Mapping[str, Any]

_IMPORT_S = 60.0
"""Seconds for the import of torch, which takes long from a network's disk."""
_DRIVER_S = 8.0
"""Seconds for an answer that only a driver that hangs does not give."""
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF")
_SIGNS = ("/dev/nvidiactl", "/proc/driver/nvidia/version")
"""Files of the NVIDIA driver."""
_NO_DEVICE = (Kind.NO_PACKAGE, Kind.NO_LIBRARY, Kind.NO_DRIVER)
"""Without a sign of a device these are what a machine without one has."""
_HIDES_ALL = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES by which the user has chosen the CPU."""
_GET_TORCH = "choose the build for this machine at https://pytorch.org/get-started/locally"
_NO_SAVED_TENSORS = Lack(
    "saved tensors",
    "this torch does not show what hooks on saved tensors have packed, those of checkpointing and save_on_cpu",
    "what a checkpointed region computes again and what is offloaded to the host are unknown",
    "torch 2.10 or later",
)
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""Its number is a constant of Linux: PROC_PID_INIT_INO."""


def device_parts(asked: Collection[str]) -> list[Part]:
    """Ask torch and the driver, each in a process of its own, and return the parts `torch` and `driver`."""
    torch, driver = (
        Child("gradtui.command_line.doctor.torch_answers"),
        Child("gradtui.command_line.doctor.driver_answers"),
    )
    try:
        driver_answers = list(driver.answers(_DRIVER_S))
        built, counted, found = torch.answer(_IMPORT_S), torch.answer(_DRIVER_S), torch.answer(_DRIVER_S)
        return judged(
            (built or {}, counted or {}, found or {}),
            driver_answers,
            (torch.trouble, driver.trouble),
            asked,
            {name: os.environ[name] for name in _VARIABLES if name in os.environ},
            has_signs=any(map(os.path.exists, _SIGNS)),
        )
    finally:
        torch.stop()
        driver.stop()


def judged(
    torch: tuple[Answer, Answer, Answer],
    driver: Sequence[Answer],
    silences: tuple[str | None, str | None],
    asked: Collection[str],
    variables: Mapping[str, str],
    *,
    has_signs: bool,
) -> list[Part]:
    """Return the parts `torch` and `driver`, from what each has answered and why it has not answered more."""
    built, _, found = torch
    first, devices = (driver[0], driver[1:]) if driver else ({}, [])
    trouble = _trouble_of(first)
    has_device = bool(
        has_signs
        or (found.get("available") and not built.get("hip"))
        or first.get("count")
        or (trouble is not None and trouble.kind not in _NO_DEVICE)
    )
    return [
        _torch_part(torch, silences[0], first, devices, variables, has_device=has_device),
        _driver_part(first, devices, silences[1], has_device=has_device, wants="nvml" in asked),
    ]


def _torch_part(
    torch: tuple[Answer, Answer, Answer],
    silence: str | None,
    driver: Answer,
    devices: Sequence[Answer],
    variables: Mapping[str, str],
    *,
    has_device: bool,
) -> Part:
    built, counted, found = torch
    facts = {
        **{name: built.get(name) for name in ("version", "path", "cuda", "hip", "error")},
        "devices": counted.get("counted"),
        **{name: found.get(name) for name in ("available", "warning", "architectures", "mps", "xpu")},
        "silence": silence or None,
        "environment": dict(variables),
    }
    named = tuple(f"{name}={value}" for name, value in variables.items())
    if built.get("version") is None:
        return Part("torch", facts, (_no_torch(built, silence), *named), tuple(_lacks_without_torch(built, silence)))
    rows = [f"{built['version']}, {_build_words(built)}", str(built["path"])]
    if found:
        rows.append(_found_words(built, counted, found))
    lacks = [*_cuda_lacks(built, found, silence, driver, devices, variables, has_device=has_device)]
    if built.get("reads_saved") is False:
        lacks.append(_NO_SAVED_TENSORS)
    return Part("torch", facts, (*rows, *named), tuple(lacks))


def _no_torch(built: Answer, silence: str | None) -> str:
    if not built:
        return f"unknown: {silence}"
    return f"cannot be imported: {built['error']}" if built["is_installed"] else "not installed"


def _lacks_without_torch(built: Answer, silence: str | None) -> Iterator[Lack]:
    is_broken = built.get("is_installed", True)
    what = f"torch is {_no_torch(built, silence)}" if not is_broken else f"torch: {_no_torch(built, silence)}"
    yield Lack(
        "training",
        what,
        "gradtui cannot watch, check or forecast a script; it can replay recordings and attach to live runs",
        f"pip install torch in the environment of gradtui; {_GET_TORCH}",
        is_broken,
    )
    yield Lack("cuda", "CUDA is unknown without torch", "no training on a device", "install torch first")


def _build_words(built: Answer) -> str:
    if built.get("hip"):
        return f"built for ROCm {built['hip']}"
    return f"built for CUDA {built['cuda']}" if built.get("cuda") else "built without CUDA"


def _found_words(built: Answer, counted: Answer, found: Answer) -> str:
    others = [name for name in ("mps", "xpu") if found.get(name)]
    if not (built.get("cuda") or built.get("hip")):
        return f"devices: cpu{''.join(f', {name}' for name in others)}"
    count = counted.get("counted") or 0
    if not found.get("available"):
        return f"no CUDA device can be used ({plural(count, 'device')} counted)"
    return f"{plural(count, 'CUDA device')} can be used (no context was made, nothing was allocated)"


def _cuda_lacks(
    built: Answer,
    found: Answer,
    silence: str | None,
    driver: Answer,
    devices: Sequence[Answer],
    variables: Mapping[str, str],
    *,
    has_device: bool,
) -> Iterator[Lack]:
    cost = "training runs on the CPU"
    if not found:
        yield Lack("cuda", f"torch says nothing of its devices: {silence}", cost, "see what nvidia-smi says", True)
    elif not (built.get("cuda") or built.get("hip")):
        if found.get("mps") or found.get("xpu"):
            return
        what = "torch is built without CUDA" + (", and there is an NVIDIA device" if has_device else "")
        yield Lack("cuda", what, cost, _GET_TORCH if has_device else "a CUDA device, and torch built for it")
    elif not found.get("available"):
        what, remedy = _why_unusable(built, found, driver, variables, has_device=has_device)
        is_hidden = variables.get("CUDA_VISIBLE_DEVICES", "0").strip() in _HIDES_ALL
        yield Lack("cuda", what, cost, remedy, not is_hidden and (has_device or "CUDA_VISIBLE_DEVICES" in variables))
    else:
        yield from _architecture_lacks(found.get("architectures") or (), devices)


def _why_unusable(
    built: Answer, found: Answer, driver: Answer, variables: Mapping[str, str], *, has_device: bool
) -> tuple[str, str]:
    """Return why a build for CUDA finds no device, and what helps."""
    visible, needed, known = (
        variables.get("CUDA_VISIBLE_DEVICES"),
        _major(built.get("cuda")),
        _major(driver.get("cuda")),
    )
    if has_device and needed is not None and known is not None and known < needed:
        return (
            f"torch is built for CUDA {built['cuda']}, and the driver is for CUDA {driver['cuda']}",
            f"a newer driver, or torch built for CUDA {known}; {_GET_TORCH}",
        )
    if visible is not None and not found.get("warning"):
        return f"CUDA_VISIBLE_DEVICES={visible} leaves no device", "unset it, or compare it with nvidia-smi -L"
    if not has_device:
        return "there is no CUDA device", "a device with its driver; in a container, start it with access to the device"
    return f"torch cannot use the device: {found.get('warning') or 'it says no reason'}", "see what nvidia-smi says"


def _major(version: str | None) -> int | None:
    match = re.match(r"\d+", version or "")
    return int(match[0]) if match else None


def _architecture_lacks(architectures: Sequence[str], devices: Sequence[Answer]) -> Iterator[Lack]:
    for device in devices:
        capability = device.get("capability")
        if capability and architectures and not runs_on(architectures, capability):
            yield Lack(
                "cuda",
                f"torch's build has no code for device {device['index']} (compute capability {capability})",
                "operations on it fail",
                _GET_TORCH,
                True,
            )


def runs_on(architectures: Sequence[str], capability: str) -> bool:
    """Return whether code for such architectures (`sm_80`, `compute_90`) runs on a device.

    Binary code runs on devices of the same major version that are not older; `compute_` code on all that are not older.
    """
    major, minor = (int(part) for part in capability.split("."))
    for each in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", each)
        if match is None:
            continue
        built = int(match[2]), int(match[3])
        is_same = built[0] == major
        if built == (major, minor) or (not match[4] and built <= (major, minor) and (is_same or match[1] == "compute")):
            return True
    return False


def _driver_part(
    first: Answer, devices: Sequence[Answer], silence: str | None, *, has_device: bool, wants: bool
) -> Part:
    trouble = _trouble_of(first)
    facts = {
        **{name: first.get(name) for name in ("package", "driver", "cuda", "trouble")},
        "sees_own_process": _sees_own_process(),
        "silence": silence or None,
        "devices": [dict(device) for device in devices],
    }
    lacks = list(_driver_lacks(first, devices, silence, has_device=has_device, wants=wants))
    rows = []
    if first.get("count") is not None:
        rows.append(f"{first['driver'] or 'unknown version'}, for CUDA {first['cuda'] or 'of unknown version'}")
    if silence:
        rows.append(f"NVML: {silence}")
    elif trouble is not None:
        rows.append(nvml_trouble_text(trouble) if has_device else "no NVIDIA device")
    return Part("driver", facts, (*rows, *map(_device_words, devices)), tuple(lacks))


def _driver_lacks(
    first: Answer, devices: Sequence[Answer], silence: str | None, *, has_device: bool, wants: bool
) -> Iterator[Lack]:
    trouble = _trouble_of(first)
    cost = "no figures of the driver: the device's memory in use, that of this process, the load"
    if silence:
        yield Lack(
            "nvml", f"NVML: {silence}", cost, "see whether nvidia-smi answers; a driver that hangs needs a reboot", True
        )
    elif trouble is not None and (has_device or wants):
        what, remedy = nvml_trouble_parts(trouble)
        yield Lack("nvml", what, cost, remedy, has_device)
    for device in devices:
        trouble = _trouble_of(device)
        if trouble is not None:
            what, remedy = nvml_trouble_parts(trouble)
            yield Lack("nvml", f"device {device['index']}: {what}", cost, remedy, True)
    if devices and not _sees_own_process():
        yield Lack(
            "process list",
            "this process has a number of its own (a container), by which NVML does not know it",
            "the device's memory in use is known, and not the share of this process in it",
            "start the container with --pid=host",
        )


def _sees_own_process() -> bool:
    """Return whether the numbers of processes here are those that the driver knows."""
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def _trouble_of(answer: Answer) -> NvmlTrouble | None:
    kind = answer.get("trouble")
    return NvmlTrouble(Kind(kind), answer.get("code")) if kind is not None else None


def _device_words(device: Answer) -> str:
    trouble = _trouble_of(device)
    parts = [str(device.get("name") or "unknown"), *([device["uuid"]] if device.get("uuid") else [])]
    if device.get("total") is not None:
        parts.append(f"{short_bytes(device['used'])} of {short_bytes(device['total'])} in use")
    elif trouble is not None:
        parts.append(nvml_trouble_text(trouble))
    if device.get("capability"):
        parts.append(f"compute {device['capability']}")
    if device.get("mig") is not None:
        parts.append(f"MIG {'on' if device['mig'] else 'off'}")
    processes = device.get("processes")
    words = "1 process" if processes == 1 else f"{processes} processes"
    parts.append("no process list" if processes is None else f"{words} listed")
    return f"{device['index']}: {', '.join(parts)}"
