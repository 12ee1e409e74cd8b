"""What the page says of torch and the driver, from their answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pynvml
import pytest
from helpers.fake_driver import FakeDriver, Gpu

from gradtui.command_line.doctor import devices
from gradtui.command_line.doctor.devices import judged, runs_on
from gradtui.command_line.doctor.driver_answers import answers
from gradtui.command_line.doctor.page import Lack, Page, page_of
from gradtui.protocol.driver import NvmlTroubleKind as Kind

Answer = Mapping[str, Any]
GIB = 1 << 30

CPU = {"version": "2.9.0+cpu", "path": "/site/torch", "cuda": None, "hip": None}
CUDA = {"version": "2.9.0+cu130", "path": "/site/torch", "cuda": "13.0", "hip": None}
NONE = {"available": False, "warning": None, "architectures": [], "mps": False, "xpu": False}
FOUND = {**NONE, "available": True, "architectures": ["sm_80", "sm_90", "compute_90"]}
DRIVER = {"package": "13.1", "driver": "580.65", "cuda": "13.0", "count": 1, "trouble": None, "code": None}
H100 = {
    "index": 0, "name": "NVIDIA H100", "uuid": "GPU-8932f937", "used": 2 * GIB, "total": 80 * GIB, "mig": False,
    "capability": "9.0", "processes": 3, "trouble": None, "code": None,
}  # fmt: skip
NO_NVIDIA = {"package": "13.1", "trouble": Kind.NO_LIBRARY.value, "code": None}


@pytest.fixture(autouse=True)
def sees_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_sees_own_process", lambda: True)


def page(
    built: Answer = CUDA,
    found: Answer = FOUND,
    driver: Sequence[Answer] = (DRIVER, H100),
    *,
    silences: tuple[str | None, str | None] = ("", ""),
    asked: tuple[str, ...] = (),
    signs: bool = False,
    counted: int = 1,
    **variables: str,
) -> Page:
    answered = (built, {"counted": counted} if found else {}, found)
    return page_of(judged(answered, driver, silences, asked, variables, has_signs=signs), asked)


def lack(of: Page) -> Lack:
    (found,) = of.lacks
    return found


def rows(of: Page) -> str:
    return "\n".join(row for part in of.parts for row in part.rows)


def test_a_device_that_torch_and_the_driver_see() -> None:
    seen = page()
    assert (seen.lacks, seen.exit_code) == ((), 0)
    assert "2.9.0+cu130, built for CUDA 13.0" in rows(seen)
    assert "1 CUDA device can be used" in rows(seen)
    assert "580.65, for CUDA 13.0" in rows(seen)
    row = "0: NVIDIA H100, GPU-8932f937, 2.00 GiB of 80.0 GiB in use, compute 9.0, MIG off, 3 processes listed"
    assert row in rows(seen)


def test_machine_without_device_lacks_cuda() -> None:
    for built in (CPU, CUDA):
        seen = page(built, NONE, (NO_NVIDIA,), counted=0)
        assert (lack(seen).name, lack(seen).is_asked_for, seen.exit_code) == ("cuda", False, 0)
        assert "CPU" in lack(seen).cost
        assert "no NVIDIA device" in rows(seen)


@pytest.mark.parametrize("ability", ["cuda", "nvml"])
def test_what_is_asked_for_by_name_must_work(ability: str) -> None:
    seen = page(CUDA, NONE, (NO_NVIDIA,), asked=(ability,), counted=0)
    assert seen.exit_code == 1
    assert [each.name for each in seen.lacks if each.is_asked_for] == [ability]
    assert page(asked=(ability,)).exit_code == 0


def test_a_torch_that_hides_what_autograd_keeps() -> None:
    seen = page({**CUDA, "reads_saved": False})
    assert (lack(seen).name, seen.exit_code) == ("saved tensors", 0)


def test_torch_is_not_installed() -> None:
    """Recordings can be looked at without it; a run was not asked for."""
    seen = page({"error": "No module named 'torch'", "is_installed": False}, {}, (NO_NVIDIA,))
    assert seen.exit_code == 0
    assert [each.name for each in seen.lacks] == ["training", "cuda"]
    assert "replay recordings" in seen.lacks[0].cost
    assert seen.lacks[0].what == "torch is not installed"
    again = page({"error": "No module named 'torch'", "is_installed": False}, {}, (NO_NVIDIA,), asked=("training",))
    assert again.exit_code == 1


def test_torch_that_cannot_be_imported_is_a_failure() -> None:
    seen = page({"error": "ImportError: libcudart.so.12", "is_installed": True}, {}, (NO_NVIDIA,))
    assert seen.exit_code == 1
    assert "libcudart.so.12" in seen.lacks[0].what


@pytest.mark.parametrize(
    ("built", "found", "what"),
    [({}, {}, "torch: unknown: no answer within 60 s"), (CUDA, {}, "torch says nothing of its devices: no answer")],
)
def test_torch_that_does_not_answer(built: Answer, found: Answer, what: str) -> None:
    silence = "no answer within 60 s" if not built else "no answer within 8 s"
    seen = page(built, found, silences=(silence, ""))
    assert seen.exit_code == 1
    assert seen.lacks[0].what.startswith(what)


def test_a_driver_that_does_not_answer() -> None:
    seen = page(found=NONE, driver=(), silences=("", "no answer within 8 s"), signs=True)
    assert seen.exit_code == 1
    (nvml,) = [each for each in seen.lacks if each.name == "nvml"]
    assert nvml.what == "NVML: no answer within 8 s"
    # On any machine: something was there to hang.
    assert page(CPU, NONE, (), silences=("", "no answer within 8 s")).exit_code == 1


@pytest.mark.parametrize("kind", [Kind.MISMATCH, Kind.NO_PERMISSION, Kind.LOST, Kind.RESET_REQUIRED, Kind.FAILED])
def test_a_driver_that_fails_is_a_failure(kind: Kind) -> None:
    seen = page(driver=({"trouble": kind.value, "code": None},))
    assert (lack(seen).name, seen.exit_code) == ("nvml", 1)
    assert " unknown: " in lack(seen).what
    assert lack(seen).remedy


def test_one_of_two_devices_that_fails() -> None:
    lost = {"index": 1, "trouble": Kind.LOST.value, "code": None}
    seen = page(driver=({**DRIVER, "count": 2}, H100, lost), counted=2)
    assert lack(seen).what == "device 1: NVML's figures are unknown: the GPU is lost"
    assert "1: unknown" in rows(seen)


def test_without_the_package_a_device_has_no_figures() -> None:
    seen = page(driver=({"package": None, "trouble": Kind.NO_PACKAGE.value, "code": None},))
    assert (lack(seen).name, lack(seen).remedy) == ("nvml", "pip install nvidia-ml-py")


def test_driver_that_is_too_old_for_build() -> None:
    seen = page(found=NONE, driver=({**DRIVER, "cuda": "12.4"}, H100))
    assert lack(seen).what == "torch is built for CUDA 13.0, and the driver is for CUDA 12.4"
    assert seen.exit_code == 1


def test_a_build_without_cuda_beside_a_device() -> None:
    seen = page(CPU, NONE)
    assert "without CUDA" in lack(seen).what
    assert seen.exit_code == 0


@pytest.mark.parametrize(("visible", "code"), [("7", 1), ("", 0), ("-1", 0)])
def test_devices_that_the_environment_hides(visible: str, code: int) -> None:
    """By a number that no device has, or by intention."""
    seen = page(found=NONE, counted=0, CUDA_VISIBLE_DEVICES=visible)
    assert lack(seen).what == f"CUDA_VISIBLE_DEVICES={visible} leaves no device"
    assert seen.exit_code == code
    assert f"CUDA_VISIBLE_DEVICES={visible}" in rows(seen)


def test_what_torch_warns_of_is_on_the_page() -> None:
    seen = page(found={**NONE, "warning": "CUDA initialization: error 803\x1b[2J"})
    assert lack(seen).what == "torch cannot use the device: CUDA initialization: error 803·[2J"


def test_device_for_which_build_has_no_code() -> None:
    seen = page(driver=(DRIVER, {**H100, "capability": "7.0"}))
    assert "device 0 (compute capability 7.0)" in lack(seen).what
    assert seen.exit_code == 1


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80"], "8.6", True),
        (["sm_86"], "8.0", False),
        (["sm_80"], "9.0", False),
        (["sm_80", "compute_80"], "9.0", True),
        (["sm_90", "compute_90"], "8.0", False),
        (["sm_120"], "12.0", True),
        (["sm_100", "sm_120"], "10.3", True),
        (["sm_90a"], "9.0", True),
        (["gfx90a"], "9.0", False),
    ],
)
def test_code_runs_on_its_own_generation(architectures: list[str], capability: str, runs: bool) -> None:
    assert runs_on(architectures, capability) == runs


def test_process_number_that_driver_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_sees_own_process", lambda: False)
    seen = page()
    assert (lack(seen).name, seen.exit_code) == ("process list", 0)
    assert "--pid=host" in lack(seen).remedy
    assert page(CPU, NONE, (NO_NVIDIA,)).lacks[-1].name == "cuda"


def driver_says(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, code: int | None = None) -> list[Answer]:
    module = driver.module()

    def init() -> None:
        if code is not None:
            raise pynvml.NVMLError(code)

    module.nvmlInit = init
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return list(answers())


def test_what_the_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver({"GPU-a": Gpu(name=b"X", used=5, total=9, processes=[(1, 1)], mig=False), "GPU-b": Gpu()})
    first, *of_devices = driver_says(monkeypatch, driver)
    assert (first["count"], first["trouble"]) == (2, None)
    expected = {"index": 0, "name": "X", "used": 5, "total": 9, "mig": False, "processes": 1, "trouble": None}
    assert {name: of_devices[0][name] for name in expected} == expected
    assert (of_devices[1]["total"], of_devices[1]["trouble"]) == (None, "no permission")


def test_a_driver_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    (only,) = driver_says(monkeypatch, FakeDriver({}), pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert only["trouble"] == "mismatch"


def test_a_driver_that_fails_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver({"GPU-a": Gpu(used=5)})
    driver.lost = True
    (only,) = driver_says(monkeypatch, driver)
    assert (only["count"], only["trouble"]) == (None, "lost")
