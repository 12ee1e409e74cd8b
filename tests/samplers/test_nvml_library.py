"""What the driver's library answers, read through the real pynvml: that of `tests/fake_cuda` in place of the driver's.

No device is needed, but a C compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

HERE = Path(__file__).parent
SOURCES = [HERE.parent / "fake_cuda" / name for name in ("nvml.c", "machine.c")]
MIB = 1 << 20
NAMES = ("name", "used", "total", "reserved", "process", "utilisation", "trouble")
UNKNOWN = dict.fromkeys(NAMES)
Act = tuple[str, Any]
Ask = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """One process for all tests: it takes seconds to import torch."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the simulated libnvidia-ml.so.1 needs Linux and a C compiler (cc or gcc)")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, *SOURCES], check=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": str(HERE.parent.parent),
        "FAKE_NVML_FAILS": str(folder / "fails"),
    }
    with subprocess.Popen(
        [sys.executable, HERE / "nvml_process.py"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started
        started.stdin.close()


@pytest.fixture
def ask(process: subprocess.Popen[str]) -> Ask:
    """The answers to some acts on a machine; `uuid` is what torch knows of the device."""

    def asked(machine: str, *acts: Act, environ: dict[str, str] | None = None, uuid: str = "a") -> list[Any]:
        request = {"machine": machine, "acts": acts, "environ": environ or {}, "torch": {"uuid": uuid}}
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    return asked


def read(index: int = 0, uuid: str | None = "a", pci: str | None = None) -> Act:
    return "read", (index, uuid, pci)


ONE = f"gpu NVIDIA-X GPU-a 00000000:3B:00.0 {50 * MIB} {80 * MIB} {4 * MIB} 37 -1"
TWO_USERS = f"""{ONE}
compute 999999 -1
compute OWN {20 * MIB}
graphics 999998 {7 * MIB}
compute 999997 {5 * MIB}"""


def test_processes_of_two_users(ask: Ask) -> None:
    """The driver tells nothing of the first one's memory; its own process is found behind it."""
    (reading,) = ask(TWO_USERS, read())
    assert reading == {
        "name": "NVIDIA-X", "used": 50 * MIB, "total": 80 * MIB, "reserved": 4 * MIB, "process": 20 * MIB,
        "utilisation": 0.37, "trouble": None,
    }  # fmt: skip


@pytest.mark.parametrize("others", ["", f"\ncompute 999999 {5 * MIB}"])
def test_where_driver_does_not_tell_of_this_process(ask: Ask, others: str) -> None:
    (reading,) = ask(f"{ONE}\ncompute OWN -1{others}", read())
    assert (reading["process"], reading["used"], reading["trouble"]) == (None, 50 * MIB, "process not reported")
    (reading,) = ask(f"{ONE}{others}", read())
    assert (reading["process"], reading["used"], reading["trouble"]) == (None, 50 * MIB, "process hidden")


def test_unsupported_is_unknown_and_rest_told(ask: Ask) -> None:
    refused = "\n".join(
        f"refuse {function} {pynvml.NVML_ERROR_NOT_SUPPORTED}"
        for function in (
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetName",
        )
    )
    (reading,) = ask(f"{TWO_USERS}\ngraphics OWN {3 * MIB}\n{refused}", read())
    assert reading == {**UNKNOWN, "used": 50 * MIB, "total": 80 * MIB, "reserved": 4 * MIB, "process": 3 * MIB}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH])
def test_first_memory_version_counts_driver_reserve(ask: Ask, code: int) -> None:
    (reading,) = ask(f"{ONE}\nrefuse nvmlDeviceGetMemoryInfo_v2 {code}", read())
    assert (reading["used"], reading["total"], reading["reserved"]) == (54 * MIB, 80 * MIB, None)


GONE = [
    (pynvml.NVML_ERROR_GPU_IS_LOST, "lost"),
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no driver"),
    (pynvml.NVML_ERROR_UNKNOWN, "failed 999"),
]


@pytest.mark.parametrize(("code", "trouble"), GONE)
def test_disappearing_driver_takes_and_returns_figures(ask: Ask, code: int, trouble: str) -> None:
    before, _, during, _, after = ask(TWO_USERS, read(), ("fail", code), read(), ("fail", 0), read())
    assert before["process"] == 20 * MIB
    # The name of a device does not change.
    assert during == {**UNKNOWN, "name": "NVIDIA-X", "trouble": trouble}
    assert after == before


@pytest.mark.parametrize(("code", "trouble"), GONE)
def test_the_sampler_goes_on_without_the_driver(ask: Ask, code: int, trouble: str) -> None:
    before, _, during, again, _, after = ask(
        TWO_USERS, ("sample", 0), ("fail", code), ("sample", 0), ("sample", 0), ("fail", 0), ("sample", 0)
    )
    assert (before["source"], before["device_used"], before["device_process"]) == ("NVIDIA-X", 50 * MIB, 20 * MIB)
    for sample in (during, again):
        assert (sample["source"], sample["device_used"], sample["device_process"]) == ("NVIDIA-X", None, None)
        assert sample["host_rss"] > 0
        assert sample["trouble"] == trouble
    assert (after["device_used"], after["device_process"]) == (50 * MIB, 20 * MIB)


def test_without_driver_at_start_nothing_is_known(ask: Ask) -> None:
    code = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert ask(f"refuse nvmlInitWithFlags {code}", read()) == [{**UNKNOWN, "trouble": "no driver"}]
    (sample,) = ask(f"refuse nvmlInitWithFlags {code}", ("sample", 0))
    assert (sample["source"], sample["device_used"], sample["trouble"]) == ("host", None, "no driver")


def test_a_library_of_another_version_than_the_driver(ask: Ask) -> None:
    refused = f"refuse nvmlInitWithFlags {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}"
    assert ask(refused, read()) == [{**UNKNOWN, "trouble": "mismatch"}]


@pytest.mark.parametrize(
    ("code", "trouble"),
    [(pynvml.NVML_ERROR_NO_PERMISSION, "no permission"), (pynvml.NVML_ERROR_NOT_SUPPORTED, "not supported")],
)
def test_memory_that_the_driver_does_not_tell(ask: Ask, code: int, trouble: str) -> None:
    functions = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
    (reading,) = ask("\n".join([TWO_USERS, *(f"refuse {each} {code}" for each in functions)]), read())
    assert (reading["used"], reading["process"], reading["trouble"]) == (None, 20 * MIB, trouble)


def test_script_that_shuts_library_down_costs_one_reading(ask: Ask) -> None:
    before, _, during, after = ask(TWO_USERS, read(), ("shut down", 0), read(), read())
    assert during == {**UNKNOWN, "name": "NVIDIA-X"}
    assert after == before


# An A100 in two instances, between them a place that is empty; the whole GPU holds what both and others hold.
DIVIDED = f"""gpu NVIDIA-A GPU-a 00000000:3B:00.0 {70 * MIB} {80 * MIB} {4 * MIB} -1 1
instance - 0 0
instance MIG-1 {11 * MIB} {40 * MIB}
compute OWN {10 * MIB}
instance MIG-2 {22 * MIB} {40 * MIB}
compute 999999 -1"""
FIRST = {
    "name": "NVIDIA-A MIG",
    "used": 11 * MIB,
    "total": 40 * MIB,
    "reserved": 0,
    "process": 10 * MIB,
    "utilisation": None,
    "trouble": None,
}
SECOND = {
    "name": "NVIDIA-A MIG",
    "used": 22 * MIB,
    "total": 40 * MIB,
    "reserved": 0,
    "process": None,
    "utilisation": None,
    "trouble": "process hidden",
}


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        (None, read(), FIRST),
        ("0", read(), FIRST),
        ("MIG-2", read(), SECOND),
        (None, read(uuid="2"), SECOND),
        ("MIG-2", read(uuid=None, pci="00000000:3B:00.0"), SECOND),
        ("MIG-3", read(), {**UNKNOWN, "trouble": "not found"}),
    ],
)
def test_the_instance_of_a_divided_gpu(ask: Ask, visible: str | None, device: Act, expected: dict[str, Any]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert ask(DIVIDED, device, environ=environ) == [expected]


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetHandleByUUID"]
)
def test_failing_driver_leads_to_no_other_device(ask: Ask, function: str) -> None:
    """Else the figures of the whole GPU, or of another one's instance, would be told for the rest of the run."""
    refused = f"\nrefuse {function} {pynvml.NVML_ERROR_UNKNOWN}"
    assert ask(DIVIDED + refused, read(uuid="2", pci="00000000:3B:00.0"), read(pci="00000000:3B:00.0"))[-1] == {
        **UNKNOWN,
        "trouble": "failed 999",
    }


def test_missing_device_is_looked_for_again(ask: Ask) -> None:
    _, first, _, second = ask(DIVIDED, ("fail", pynvml.NVML_ERROR_UNKNOWN), read(), ("fail", 0), read())
    assert (first, second) == ({**UNKNOWN, "trouble": "failed 999"}, FIRST)


TWO = f"""gpu NVIDIA-A GPU-a 00000000:3B:00.0 {1 * MIB} {80 * MIB} 0 1 -1
gpu NVIDIA-B GPU-b 00000000:AF:00.0 {2 * MIB} {80 * MIB} 0 2 0"""


@pytest.mark.parametrize(
    ("visible", "order", "device", "name"),
    [
        # By its UUID, whatever the number.
        ("1", "", read(0, "b"), "NVIDIA-B"),
        ("1,0", "", read(1, "a"), "NVIDIA-A"),
        ("GPU-b", "", read(0, "b"), "NVIDIA-B"),
        ("1", "", read(0, None, "00000000:AF:00.0"), "NVIDIA-B"),
        # By the number alone.
        ("1", "PCI_BUS_ID", read(0, None), "NVIDIA-B"),
        ("1", "", read(0, None), None),
        ("GPU-b,GPU-a", "", read(0, None), "NVIDIA-B"),
        ("GPU-b,GPU-a", "", read(1, None), "NVIDIA-A"),
    ],
)
def test_which_of_two_gpus(ask: Ask, visible: str, order: str, device: Act, name: str | None) -> None:
    (reading,) = ask(TWO, device, environ={"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order})
    assert reading["name"] == name
    assert reading["used"] == {"NVIDIA-A": MIB, "NVIDIA-B": 2 * MIB, None: None}[name]
