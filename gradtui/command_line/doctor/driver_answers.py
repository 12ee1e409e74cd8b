"""What the NVIDIA driver says of its devices, in a process of its own (`child.py`). It imports no torch, and uses no CUDA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gradtui.command_line.doctor.child import tell
from gradtui.probe.samplers.nvml import Nvml, ShutDown, Unanswered
from gradtui.protocol.driver import NvmlTrouble

_SHOWN_OF_UUID = 12
"""Characters of a UUID: enough for CUDA_VISIBLE_DEVICES."""


def answers() -> Iterator[Mapping[str, Any]]:
    """Yield the versions, then the facts of each device."""
    nvml = Nvml()
    trouble = nvml.connect()
    package = None
    with contextlib.suppress(PackageNotFoundError):
        package = version("nvidia-ml-py")
    if trouble is not None:
        yield {"package": package, **_trouble_facts(trouble)}
        return
    questions = _Questions(nvml)
    cuda = questions.answer("nvmlSystemGetCudaDriverVersion_v2")
    count = questions.answer("nvmlDeviceGetCount")
    yield {
        "package": package,
        "driver": _text(questions.answer("nvmlSystemGetDriverVersion")),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda is not None else None,
        "count": count,
        **_trouble_facts(questions.trouble if count is None else None),
    }
    for index in range(count or 0):
        yield _device(nvml, index)


class _Questions:
    """Questions to the driver, and the newest failure."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.trouble: NvmlTrouble | None = None

    def answer(self, function: str, *about: Any) -> Any:
        """Return the answer; None if the driver refuses or fails."""
        try:
            return self._nvml.answer(function, *about)
        except ShutDown:
            return None
        except Unanswered as failure:
            self.trouble = failure.trouble
            return None


def _device(nvml: Nvml, index: int) -> Mapping[str, Any]:
    questions = _Questions(nvml)
    handle = questions.answer("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return {"index": index, **_trouble_facts(questions.trouble or nvml.refused())}
    memory, trouble = nvml.memory(handle)
    mig = questions.answer("nvmlDeviceGetMigMode", handle)
    capability = questions.answer("nvmlDeviceGetCudaComputeCapability", handle)
    processes = questions.answer("nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "index": index,
        "name": _text(questions.answer("nvmlDeviceGetName", handle)),
        "uuid": (_text(questions.answer("nvmlDeviceGetUUID", handle)) or "")[:_SHOWN_OF_UUID] or None,
        "used": memory.used if memory is not None else None,
        "total": memory.total if memory is not None else None,
        "mig": bool(mig[0]) if mig else None,
        "capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "processes": len(processes) if processes is not None else None,
        **_trouble_facts(trouble),
    }


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _trouble_facts(trouble: NvmlTrouble | None) -> dict[str, Any]:
    return {"trouble": trouble.kind.value if trouble is not None else None, "code": trouble and trouble.code}


def main() -> None:
    """Tell the process that asks."""
    tell(answers())
