"""What the driver says, does not say, and of which device it says it. With pynvml's own structures; no device is needed."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pynvml
import pytest
import torch
from helpers.fake_driver import FakeDriver, Gpu
from helpers.programs import run_program

from gradtui.probe.samplers.device_identity import DeviceIdentity, identity
from gradtui.probe.samplers.nvml import DeviceReading, Nvml
from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.driver import NvmlTroubleKind as Kind
from gradtui.protocol.samples import DeviceCondition, Throttling

OWN = os.getpid()
FIRST = DeviceIdentity(0, "a")


def read(driver: FakeDriver, device: DeviceIdentity = FIRST) -> DeviceReading:
    return Nvml(driver.module()).read(device)


def alone(gpu: Gpu) -> DeviceReading:
    return read(FakeDriver({"GPU-a": gpu}))


def test_everything_that_the_driver_tells() -> None:
    gpu = Gpu(name=b"NVIDIA X", used=5, total=9, reserved=2, load=50, processes=[(1, 1), (OWN, 4)])
    assert alone(gpu) == DeviceReading("NVIDIA X", used=5, total=9, reserved=2, process=4, utilisation=0.5)


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x1, ()),
        (0x4, (Throttling.POWER_CAP,)),
        (0x8 | 0x40, (Throttling.HEAT,)),
        (0x20, (Throttling.HEAT,)),
        (0x8 | 0x80, (Throttling.POWER_BRAKE,)),
        (0x8, (Throttling.SLOWDOWN,)),
    ],
)
def test_what_keeps_a_device_below_its_clock(bits: int, expected: tuple[Throttling, ...]) -> None:
    told = {
        "Temperature": 71,
        "PowerUsage": 412_300,
        "EnforcedPowerLimit": 700_000,
        "ClockInfo": 1_200,
        "Reasons": bits,
    }
    condition = alone(Gpu(condition=told)).condition
    assert condition == DeviceCondition(71, pytest.approx(412.3), 700.0, 1_200, None, expected)


def test_what_the_driver_refuses_is_unknown() -> None:
    assert alone(Gpu()) == DeviceReading(trouble=NvmlTrouble(Kind.NO_PERMISSION))
    reading = alone(Gpu(used=5, total=9))
    assert (reading.used, reading.total, reading.process, reading.utilisation) == (5, 9, None, None)


def test_driver_reserve_is_not_used_memory() -> None:
    gpu = {"GPU-a": Gpu(used=5, total=90, reserved=30)}
    assert read(FakeDriver(gpu)).used == 5
    assert read(FakeDriver(gpu, second_version=False)).used == 35


def test_process_under_another_number_is_unknown() -> None:
    """As in a container with process numbers of its own: what the whole device holds is known nevertheless."""
    reading = alone(Gpu(used=5, total=9, processes=[(OWN + 100_000, 4)]))
    assert (reading.process, reading.used, reading.trouble) == (None, 5, NvmlTrouble(Kind.PROCESS_HIDDEN))


def test_a_figure_that_is_not_available_is_unknown() -> None:
    reading = alone(Gpu(used=5, processes=[(OWN, None)]))
    assert (reading.process, reading.trouble) == (None, NvmlTrouble(Kind.PROCESS_NOT_REPORTED))
    assert alone(Gpu(processes=[(OWN, None)], drawing=[(OWN, 7)])).process == 7


def test_a_process_that_computes_and_draws_counts_once() -> None:
    assert alone(Gpu(processes=[(OWN, 7)], drawing=[(OWN, 7)])).process == 7


def test_client_of_multi_process_service_is_found() -> None:
    assert alone(Gpu(processes=[(1, 90)], served=[(OWN, 7)])).process == 7


def test_older_package_is_no_failure() -> None:
    module = FakeDriver({"GPU-a": Gpu(used=5, processes=[(1, 1)])}).module()
    del module.nvmlDeviceGetMPSComputeRunningProcesses, module.nvmlDeviceGetMigMode
    assert Nvml(module).read(FIRST).used == 5


def test_device_is_found_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    driver = FakeDriver({"GPU-a": Gpu(used=1), "GPU-b": Gpu(used=2)})
    assert read(driver, DeviceIdentity(0, "b")).used == 2
    assert read(driver, DeviceIdentity(1, "a")).used == 1


def test_device_without_uuid_is_found_by_bus() -> None:
    driver = FakeDriver({"GPU-a": Gpu(used=1), "GPU-b": Gpu(used=2, pci="00000000:3B:00.0")})
    assert read(driver, DeviceIdentity(0, None, "00000000:3B:00.0")).used == 2


@pytest.mark.parametrize(
    ("visible", "order", "used"),
    [
        ("", "PCI_BUS_ID", 2),
        ("1, 2", "PCI_BUS_ID", 3),
        ("GPU-c,GPU-a", "", 1),
        ("GPU-c,MIG-d", "", 4),
        ("", "FASTEST_FIRST", None),
        ("", "", None),
    ],
)
def test_by_number_alone_only_where_both_count_alike(
    visible: str, order: str, used: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    names = ("GPU-a", "GPU-b", "GPU-c", "MIG-d")
    driver = FakeDriver({name: Gpu(used=index + 1) for index, name in enumerate(names)})
    assert read(driver, DeviceIdentity(1)).used == used


def test_a_machines_only_device_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert read(FakeDriver({"GPU-a": Gpu(used=1)}), DeviceIdentity(0)).used == 1


DIVIDED = {
    "GPU-a": Gpu(used=100, mig=True, instances=[None, "MIG-1", "MIG-2"]),
    "MIG-1": Gpu(used=10, processes=[(OWN, 3)]),
    "MIG-2": Gpu(used=20),
}


@pytest.mark.parametrize(("visible", "used"), [("", 10), ("0", 10), ("MIG-2", 20), ("MIG-gone", None)])
def test_of_a_divided_gpu_the_instance_is_read(visible: str, used: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the whole GPU, on which others have their instances."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read(FakeDriver(DIVIDED)).used == used


def test_instance_may_be_known_by_its_own_uuid() -> None:
    assert read(FakeDriver(DIVIDED), DeviceIdentity(0, "1")).process == 3


def test_undivided_gpu_of_kind_that_could_be() -> None:
    assert alone(Gpu(used=5, mig=False)).used == 5


def test_device_that_driver_does_not_know_is_unknown() -> None:
    assert read(FakeDriver({"GPU-a": Gpu(used=5), "GPU-b": Gpu()}), DeviceIdentity(0, "z")) == DeviceReading(
        trouble=NvmlTrouble(Kind.NOT_FOUND)
    )


def test_the_device_is_looked_for_once() -> None:
    driver = FakeDriver({"GPU-a": Gpu(used=5)})
    nvml = Nvml(driver.module())
    nvml.read(FIRST)
    nvml.read(DeviceIdentity(0, "a"))
    assert driver.asked.count("nvmlDeviceGetHandleByUUID") == 1


@pytest.mark.parametrize("missing", [(), ("uuid",), ("pci_bus_id",)])
def test_what_torch_knows_of_a_device(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"uuid": "8932f937", "pci_domain_id": 0, "pci_bus_id": 59, "pci_device_id": 1}
    told = SimpleNamespace(**{name: value for name, value in known.items() if name not in missing})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: told)
    pci = None if "pci_bus_id" in missing else "00000000:3B:01.0"
    assert identity(3) == DeviceIdentity(3, None if "uuid" in missing else "8932f937", pci)


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, NvmlTrouble(Kind.NO_LIBRARY)),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, NvmlTrouble(Kind.MISMATCH)),
        (pynvml.NVML_ERROR_NO_PERMISSION, NvmlTrouble(Kind.NO_PERMISSION)),
        (pynvml.NVML_ERROR_UNKNOWN, NvmlTrouble(Kind.FAILED, 999)),
    ],
)
def test_a_connection_that_fails_is_tried_again_later(
    code: int, trouble: NvmlTrouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each reading: the kernel writes a line about each attempt of a library of another version."""
    now, attempts = [1000.0], []
    module = FakeDriver({"GPU-a": Gpu(used=5)}).module()

    def init() -> None:
        attempts.append(now[0])
        if len(attempts) == 1:
            raise pynvml.NVMLError(code)

    module.nvmlInit = init
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr("gradtui.probe.samplers.nvml.monotonic", lambda: now[0])
    nvml = Nvml()
    assert [nvml.read(FIRST).trouble for _ in range(3)] == [trouble] * 3
    assert attempts == [1000.0]
    now[0] += 60
    assert (nvml.read(FIRST).used, len(attempts)) == (5, 2)


def test_without_the_package_there_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml().read(FIRST) == DeviceReading(trouble=NvmlTrouble(Kind.NO_PACKAGE))


def test_forbidden_device_is_not_read_otherwise() -> None:
    """The first version of the structure would count the driver's own reserve as well."""
    driver = FakeDriver({"GPU-a": Gpu(name="X")})
    assert read(driver).trouble == NvmlTrouble(Kind.NO_PERMISSION)
    assert driver.asked.count("nvmlDeviceGetMemoryInfo") == 1


_FORKED = """
import os, threading
import pynvml
from gradtui.probe.samplers.nvml import Nvml

Nvml.open()
is_held, may_end = threading.Event(), threading.Event()

def asks():
    with pynvml.libLoadLock:
        is_held.set()
        may_end.wait()

threading.Thread(target=asks).start()
is_held.wait()
child = os.fork()
if not child:
    os._exit(0 if pynvml.libLoadLock.acquire(timeout=20) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
may_end.set()
raise SystemExit(code)
"""


def test_process_forked_during_query_can_ask() -> None:
    run_program(_FORKED, warnings="ignore")
