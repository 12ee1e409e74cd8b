"""Reads an imaginary machine through the real pynvml and the simulated driver's library, in a process of its own.

A line of standard input is a request in JSON, a line of standard output its answer: one entry for each act.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pynvml
import torch

from gradtui.probe.samplers.device import DeviceSampler
from gradtui.probe.samplers.device_identity import DeviceIdentity
from gradtui.probe.samplers.nvml import DeviceReading, Nvml
from gradtui.protocol.events import DeviceSampled

FAILS = "FAKE_NVML_FAILS"


def answer(request: dict[str, Any]) -> list[Any]:
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        os.environ.pop(name, None)
    os.environ.update(request["environ"], FAKE_CUDA_MACHINE=request["machine"].replace("OWN", str(os.getpid())))
    nvml = Nvml()
    nvml.connect()
    known = SimpleNamespace(**request["torch"])
    torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: 1  # a build with CUDA would ask the driver, and connect for us where that fails
    torch.cuda.memory_stats_as_nested_dict = lambda _: {}  # type: ignore[assignment]
    torch.cuda.get_device_properties = lambda _: known  # type: ignore[assignment]
    sampler = DeviceSampler(lambda: 0.0, lambda: 0, lambda: 0)
    answers: list[Any] = []
    for act, given in request["acts"]:
        if act == "read":
            answers.append(plain(nvml.read(DeviceIdentity(*given))))
        elif act == "sample":
            answers.append(plain(sampler.sample()))
        elif act == "shut down":
            answers.append(pynvml.nvmlShutdown())
        else:
            answers.append(fails(given))
    fails(0)
    return answers


def plain(reading: DeviceReading | DeviceSampled) -> dict[str, Any]:
    """The fields, with the kind of the trouble and its code as they are shown: `lost`, `failed 999`."""
    trouble = reading.trouble
    words = (
        None if trouble is None else " ".join(str(each) for each in (trouble.kind, trouble.code) if each is not None)
    )
    told = asdict(reading) | {"trouble": words}
    del told["condition"]
    return told


def fails(code: int) -> None:
    """Every call fails with this code from now on; 0: none does."""
    if code:
        with open(os.environ[FAILS], "w", encoding="utf-8") as file:
            file.write(str(code))
    elif os.path.exists(os.environ[FAILS]):
        os.unlink(os.environ[FAILS])


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
