"""Runs on a simulated device whose driver does not report everything: what the user reads, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.simulated import Simulated, run_simulated

from gradtui.protocol.driver import NvmlTrouble
from gradtui.protocol.driver import NvmlTroubleKind as Kind
from gradtui.run.text import nvml_trouble_text

pytestmark = pytest.mark.fake_cuda

TRAIN = """
import json, os, sys
from time import monotonic
import torch
from torch import nn

model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())

def train(until):
    while True:
        optimizer.zero_grad()
        model(torch.ones(8, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        if monotonic() >= until:
            break

fails = os.environ["FAKE_NVML_FAILS"]
for code in sys.argv[1:]:
    if int(code):
        with open(fails, "w") as file:
            file.write(code)
    elif os.path.exists(fails):
        os.unlink(fails)
    train(monotonic() + 1.3)
train(0.0)
print(json.dumps(torch.cuda.max_memory_allocated()))
"""


def run(*codes: int, **machine: Any) -> Simulated:
    done = run_simulated(TRAIN, *map(str, codes), **machine)
    assert done.returncode == 0, done.stderr
    return done


def said(done: Simulated) -> list[str]:
    """What gradtui says of the driver while the script runs."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("gradtui: step") and "NVML" in line]
    return [line.split(": ", 2)[2] for line in lines]


@pytest.mark.parametrize(
    ("machine", "kind"),
    [
        ({"nvml_fail": {"nvmlInitWithFlags": 18}}, Kind.MISMATCH),
        ({"nvml_fail": {"nvmlInitWithFlags": 9}}, Kind.NO_DRIVER),
        ({"nvml_fail": {"nvmlDeviceGetMemoryInfo_v2": 4}}, Kind.NO_PERMISSION),
        ({"nvml_fail": {"nvmlDeviceGetHandleByUUID": 15}}, Kind.LOST),
        ({"processes": "hidden"}, Kind.PROCESS_HIDDEN),
        ({"processes": "renumbered"}, Kind.PROCESS_HIDDEN),
        ({"processes": "unavailable"}, Kind.PROCESS_NOT_REPORTED),
    ],
    ids=["mismatch", "no driver", "no permission", "lost", "hidden", "renumbered", "unavailable"],
)
def test_what_is_unknown_has_one_sentence(machine: dict[str, Any], kind: Kind) -> None:
    done = run(0, **machine)
    sentence = nvml_trouble_text(NvmlTrouble(kind))
    assert said(done) == [sentence]
    assert done.summary["problems"] == {"NVML": {"error": sentence, "failures": 1}}
    memory = done.summary["device_memory"]
    assert (memory["device_used"] is None) == (kind not in (Kind.PROCESS_HIDDEN, Kind.PROCESS_NOT_REPORTED))


def test_a_driver_that_reports_everything_has_no_sentence() -> None:
    done = run(0, others=3 << 30)
    assert said(done) == []
    assert done.summary["problems"] == {}
    assert done.told == run(watched=False).told


def test_gpu_lost_and_back_in_run() -> None:
    done = run(0, 15, 0)
    sentence = nvml_trouble_text(NvmlTrouble(Kind.LOST))
    assert said(done) == [sentence, "NVML reports the device's figures again"]
    assert done.summary["problems"] == {"NVML": {"error": sentence, "failures": 1}}
    assert done.summary["device_memory"]["total"] is not None


def test_a_check_says_the_sentence_alone() -> None:
    """It is no failure of gradtui's own."""
    words = ["check", "--steps", "100000", "train.py", "0"]
    check = f"import sys; from gradtui.command_line.cli import main; sys.argv[1:] = {words}; main()"
    script = f"open('train.py', 'w').write({TRAIN!r}); {check}"
    done = run_simulated(script, watched=False, processes="hidden")
    assert f"gradtui: {nvml_trouble_text(NvmlTrouble(Kind.PROCESS_HIDDEN))}" in done.stderr.splitlines()
