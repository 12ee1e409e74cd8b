"""The simulated device itself: what torch sees of it."""

from __future__ import annotations

import pytest
import torch
from helpers import simulated
from helpers.simulated import Simulated, machine, run_simulated

pytestmark = pytest.mark.fake_cuda

DEVICES = """
import json, torch
names = [torch.cuda.get_device_properties(index) for index in range(torch._C._cuda_getDeviceCount())]
print(json.dumps([[str(each.uuid)[-4:], each.name, each.total_memory >> 20] for each in names]))
"""
GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["d9f0", "d9f1", "d9f2"]),
        ("2,0", ["d9f2", "d9f0"]),
        ("1,7,0", ["d9f1"]),
        ("0,0", []),
        ("", []),
        ("-1", []),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f2", ["d9f2"]),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f1,GPU-8932f937-d72c-4106-c12f-20bd9faed9f0", ["d9f1", "d9f0"]),
        ("GPU-8932", []),
    ],
)
def test_the_mask_hides_and_reorders_devices(visible: str | None, expected: list[str]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    (found,) = run_simulated(DEVICES, watched=False, devices=3, environ=environ).told
    assert [uuid for uuid, _, _ in found] == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, "00f0"), ("1", "00f1"), ("MIG-8932f937-d72c-4106-c12f-20bd9fae01f1", "01f1")],
)
def test_of_divided_gpus_a_process_sees_one_instance(visible: str | None, expected: str) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    devices = 1 if visible is None else 2  # torch takes each divided GPU for a device, where none is named
    (found,) = run_simulated(DEVICES, watched=False, devices=devices, mig=2, environ=environ).told
    assert found == [[expected, f"{H100} MIG", 40 << 10]]


TRAIN = """
import json, os
import torch
from torch import nn

model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(8, 256, device="cuda")).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
print(json.dumps([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]))
"""


def trained(**more: object) -> Simulated:
    done = run_simulated(TRAIN, **more)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done


def test_run_under_command_has_drivers_figures() -> None:
    done = trained(others=3 * GIB)
    assert done.told == trained(watched=False).told
    assert done.summary["device"] == H100
    assert done.calls.violations == 0


READ = """
import json
import torch
from gradtui.probe.samplers.device_identity import identity
from gradtui.probe.samplers.nvml import Nvml

x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
reading = Nvml().read(identity(0))
print(json.dumps({name: getattr(reading, name) for name in ("name", "used", "total", "process", "utilisation")}))
"""
OWN = simulated.OWN_CONTEXT + (100 << 20)
WHOLE = {
    "name": H100, "used": OWN + 3 * GIB, "total": 80 * GIB + simulated.RESERVED, "process": OWN, "utilisation": 0.73
}  # fmt: skip
INSTANCE = {"name": f"{H100} MIG", "used": OWN, "total": 40 * GIB, "process": OWN, "utilisation": None}
UUID = "8932f937-d72c-4106-c12f-20bd9fae"


@pytest.mark.parametrize(
    ("mig", "visible", "expected"),
    [
        (0, None, WHOLE),
        (0, "1", WHOLE),
        (0, f"GPU-{UUID}d9f1", WHOLE),
        (2, None, INSTANCE),
        (2, "1", INSTANCE),
        (2, f"MIG-{UUID}01f1", INSTANCE),
    ],
)
def test_driver_is_asked_for_device_that_torch_uses(mig: int, visible: str | None, expected: dict[str, object]) -> None:
    """The process's own bytes are on no other device."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    devices = 1 if visible is None else 2
    done = run_simulated(READ, watched=False, devices=devices, others=3 * GIB, mig=mig, environ=environ)
    assert done.told == [expected]


@pytest.mark.parametrize(
    ("processes", "nvml_fail", "unknown"),
    [
        ("hidden", None, {"process"}),
        ("unavailable", None, {"process"}),
        ("renumbered", None, {"process"}),
        ("", {"nvmlDeviceGetMemoryInfo_v2": 4, "nvmlDeviceGetMemoryInfo": 4}, {"used", "total"}),
        ("", {"nvmlDeviceGetUtilizationRates": 3}, {"utilisation"}),
    ],
)
def test_what_the_driver_refuses_is_unknown(
    processes: str, nvml_fail: dict[str, int] | None, unknown: set[str]
) -> None:
    (told,) = run_simulated(READ, watched=False, processes=processes, nvml_fail=nvml_fail).told
    assert {name for name, value in told.items() if value is None} == unknown


def test_waits_are_counted_with_their_stacks() -> None:
    done = run_simulated("import torch\ntorch.ones(1, device='cuda').item()\n", watched=False)
    waits = [stack for stack in done.stacks if stack.startswith("WAIT cudaStreamSynchronize")]
    assert len(waits) == 1
    assert 'script.py", line 2' in waits[0]


def test_forbidden_in_capture_is_counted_invalid() -> None:
    x = torch.ones(4, device="cuda")
    before = simulated.calls().violations
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    assert simulated.calls().violations > before


@pytest.mark.parametrize("backend", ["", "backend:cudaMallocAsync", "expandable_segments:True"])
def test_memory_that_is_short(backend: str) -> None:
    script = "import torch\nx = torch.empty(300 << 20, dtype=torch.uint8, device='cuda')\ny = torch.empty_like(x)\n"
    environ = {"PYTORCH_CUDA_ALLOC_CONF": backend, "PYTORCH_ALLOC_CONF": backend}
    total = simulated.OWN_CONTEXT + (500 << 20)
    done = run_simulated(script, watched=False, total=total, environ=environ)
    assert done.returncode == 1
    assert "torch.OutOfMemoryError" in done.stderr
    assert run_simulated(script, watched=False, total=total + (200 << 20), environ=environ).returncode == 0


def test_fork_of_process_that_has_used_cuda_cannot() -> None:
    script = (
        "import os, torch\ntorch.cuda.init()\n"
        "if os.fork() == 0: torch.cuda._lazy_init = lambda: None; torch.ones(1, device='cuda')\nelse: os.wait()\n"
    )
    assert "initialization error" in run_simulated(script, watched=False).stderr


def test_machines_are_described_in_lines() -> None:
    text = machine(2, others=5, mig=1, processes="hidden", nvml_fail={"all": 15})
    assert [line.split()[0] for line in text.splitlines()] == [
        "gpu", "compute", "instance", "gpu", "compute", "instance", "processes", "refuse"
    ]  # fmt: skip
