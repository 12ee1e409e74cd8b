"""The page on simulated devices, by torch's CUDA build and the real pynvml."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.simulated import run_simulated

pytestmark = pytest.mark.fake_cuda

EXAMINE = "import json; from gradtui.command_line.doctor import examine; print(json.dumps(examine().document()))"


def page(**machine: Any) -> dict[str, Any]:
    done = run_simulated(EXAMINE, watched=False, **machine)
    assert done.returncode == 0, done.stderr
    (told,) = done.told
    return dict(told)


def lacks(told: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(each["name"], each["asked_for"]) for each in told["missing"] if each["name"] in ("cuda", "nvml")]


def test_two_devices() -> None:
    told = page(devices=2, others=3 << 30)
    assert (told["torch"]["available"], told["torch"]["devices"]) == (True, 2)
    assert [(each["used"], each["mig"], each["processes"]) for each in told["driver"]["devices"]] == [
        (3 << 30, False, 1)
    ] * 2
    assert lacks(told) == []


def test_a_divided_device() -> None:
    (device,) = page(mig=2)["driver"]["devices"]
    assert device["mig"] is True


def test_a_driver_of_another_version_than_its_library() -> None:
    told = page(nvml_fail={"nvmlInitWithFlags": 18})
    assert (told["driver"]["trouble"], lacks(told), told["exit_code"]) == ("mismatch", [("nvml", True)], 1)


def test_a_mask_that_leaves_no_device() -> None:
    told = page(environ={"CUDA_VISIBLE_DEVICES": "7"})
    assert (told["torch"]["available"], lacks(told)) == (False, [("cuda", True)])


def test_torch_is_asked_without_a_context() -> None:
    script = "from gradtui.command_line.doctor.torch_answers import main; main()"
    done = run_simulated(script, watched=False)
    assert len(done.told) == 3
    assert {*done.calls.main} | {*done.calls.others} <= {"cudaGetDeviceCount"}
