"""Scripts on the simulated CUDA device of `tests/fake_cuda`, and what its runtime has counted. `.ci/cuda` runs such tests.

A test marked `fake_cuda` runs under torch's CUDA build, in a process that may use `torch.cuda`. Devices of another kind or
number, failures of the driver, and counts of a whole run need a process of their own: `run_simulated`.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from helpers import fork_server

ROOT = Path(__file__).parents[2]

LIBRARIES = os.environ.get("FAKE_CUDA_LIBRARIES")
"""Where the simulator's libraries are; None where the tests do not run on it."""

RESERVED = 500 << 20
"""Bytes of each device that the driver keeps for itself."""
OWN_CONTEXT = 500 << 20
"""Bytes that CUDA's context takes on each device that the process uses."""


@dataclass(frozen=True)
class Calls:
    """What the runtime has counted in a process."""

    violations: int = 0
    """Calls that a capture forbids."""
    waits: int = 0
    """Calls that wait for the device."""
    main: Mapping[str, int] = field(default_factory=dict)
    """Number of calls of each function of CUDA on the main thread."""
    others: Mapping[str, int] = field(default_factory=dict)
    """The same on other threads: those of autograd and of gradtui."""

    def of(self, function: str) -> int:
        """The number of calls of one function."""
        return self.main.get(function, 0) + self.others.get(function, 0)


@dataclass(frozen=True)
class Simulated:
    """What a script's run has left."""

    returncode: int
    stdout: str
    stderr: str
    calls: Calls
    stacks: Sequence[str]
    """The Python stack of each wait and violation, which the first line names: `WAIT cudaStreamSynchronize`."""
    summary: Mapping[str, Any]
    """gradtui's summary; empty under plain python."""

    @property
    def told(self) -> list[Any]:
        """The lines of JSON that the script has printed."""
        return [json.loads(line) for line in self.stdout.splitlines() if line[:1] in "{["]


def machine(
    devices: int = 1,
    *,
    total: int = 80 << 30,
    others: int = 0,
    mig: int = 0,
    processes: str = "",
    nvml_fail: Mapping[str, int] | None = None,
    load: int = 73,
    condition: str = "",
) -> str:
    """Describe a machine for `FAKE_CUDA_MACHINE`, see `tests/fake_cuda/machine.h`.

    Args:
        devices: number of GPUs; their UUIDs end with f0, f1, …
        total: bytes of each as torch has them; the driver has `RESERVED` more.
        others: bytes that another process holds on each.
        mig: into how many instances each GPU is divided.
        processes: how the driver's lists of processes differ: `hidden`, `unavailable` or `renumbered`.
        load: percent of the time in which a kernel runs, as NVML says it; not of a divided GPU.
        condition: temperature, power and clocks of each, as in `machine.h`.
        nvml_fail: the code that a function of NVML returns; `all` for each function.
    """
    lines = []
    for index in range(devices):
        uuid = f"GPU-8932f937-d72c-4106-c12f-20bd9faed9{0xF0 + index:02x}"
        pci = f"00000000:{0x3B + index:02X}:00.0"
        busy, is_divided = (-1, 1) if mig else (load, 0)
        lines.append(
            f"gpu NVIDIA_H100_80GB_HBM3 {uuid} {pci} {others} {total + RESERVED} {RESERVED} {busy} {is_divided}"
        )
        lines += [f"condition {condition}"] if condition else []
        if others:
            lines.append(f"compute 4000001 {others}")
        instances = [f"MIG-{uuid[4:-4]}{place:02x}{0xF0 + index:02x}" for place in range(mig)]
        lines += [f"instance {instance} 0 {total // mig}" for instance in instances]
    if processes:
        lines.append(f"processes {processes}")
    lines += [f"refuse {function} {code}" for function, code in (nvml_fail or {}).items()]
    return "\n".join(lines)


def run_simulated(
    script: str,
    *arguments: str,
    watched: bool = True,
    options: Sequence[str] = (),
    folder: Path | None = None,
    kernel_us: int = 5,
    fresh: bool = False,
    environ: Mapping[str, str] | None = None,
    **of_machine: Any,
) -> Simulated:
    """Run the source of a script on a machine of its own, under `gradtui --plain` or under plain python.

    A script that writes a code to the file `os.environ["FAKE_NVML_FAILS"]` makes each later call of NVML return it.

    Args:
        options: words for gradtui before the script.
        folder: where it runs and its files are; else they are deleted.
        kernel_us: the simulated time that a kernel takes.
        fresh: start an interpreter, in place of a fork of one that has imported torch.
        environ: further variables.
        of_machine: arguments of `machine`.
    """
    with tempfile.TemporaryDirectory() as made:
        where = folder or Path(made)
        files = {name: where / name for name in ("script.py", "summary.json", "calls", "stacks", "nvml_fails")}
        for file in files.values():
            file.unlink(missing_ok=True)
        files["script.py"].write_text(script, encoding="utf-8")
        ours = ["-m", "gradtui", "--plain", "--summary", str(files["summary.json"]), *options] if watched else []
        start: Any = subprocess.run if fresh else fork_server.run
        done = start(
            [sys.executable, *ours, "script.py", *arguments],
            cwd=where,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([_site(), str(ROOT)]),
                "OMP_NUM_THREADS": "1",
                "FAKE_CUDA_MACHINE": machine(**of_machine),
                "FAKE_CUDA_KERNEL_US": str(kernel_us),
                "FAKE_CUDA_LOG": str(files["calls"]),
                "FAKE_CUDA_TRACE": str(files["stacks"]),
                "FAKE_NVML_FAILS": str(files["nvml_fails"]),
                **(environ or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
        )
        text = {name: file.read_text(encoding="utf-8") if file.exists() else "" for name, file in files.items()}
    return Simulated(
        done.returncode,
        done.stdout,
        done.stderr,
        _calls(text["calls"].splitlines()[-1]) if text["calls"] else Calls(),
        text["stacks"].split("== ")[1:],
        json.loads(text["summary.json"] or "{}"),
    )


def _site() -> str:
    """The directory of torch's CUDA build."""
    found = find_spec("torch")
    assert found is not None
    return str(Path(found.origin or "").parents[1])


def calls() -> Calls:
    """What this process has called so far."""
    text = ctypes.create_string_buffer(1 << 14)
    ctypes.CDLL(f"{LIBRARIES}/libcudart.so.13").fake_cuda_report(text, ctypes.c_size_t(len(text)))
    return _calls(text.value.decode())


def _calls(report: str) -> Calls:
    told = json.loads(report)
    main, others = ({name: numbers[of] for name, numbers in told["calls"].items()} for of in (0, 1))
    return Calls(told["violations"], told["waits"], main, others)
