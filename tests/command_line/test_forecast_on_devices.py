"""`gradtui forecast` where the models are on CUDA devices, which are simulated ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import fork_server
from helpers.simulated import machine

pytestmark = pytest.mark.fake_cuda

SCRIPT = """
import sys
import torch
from torch import nn

first, last = sys.argv[1:]
layers = [nn.Linear(256, 256).to(device) for device in (first, first, last, last)]

class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.to(layer.weight.device)).relu()
        return x

model = Split()
# HERE
optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(64, 256, device=first)).square().mean().backward()
    optimizer.step()
"""
SIMULATED = "CUDA: checked on a simulated device only"
TOGETHER = "peaks are those of all devices together"


def forecast(folder: Path, *words: str, devices: tuple[str, str], line: str = "") -> Any:
    """Run a forecast of the script, in which a line comes before the optimizer."""
    (folder / "train.py").write_text(SCRIPT.replace("# HERE", line), encoding="utf-8")
    done = fork_server.run(
        [sys.executable, "-m", "gradtui", "forecast", "--freeze", "layers.0", *words, "train.py", *devices],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FAKE_CUDA_MACHINE": machine(2)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_figures_are_said_to_be_of_simulated_device(tmp_path: Path) -> None:
    done = forecast(tmp_path, devices=("cuda:0", "cuda:0"))
    assert f"gradtui: forecast after 3 steps ({SIMULATED})" in done.stderr.splitlines()


def test_peak_of_several_devices_names_its_device(tmp_path: Path) -> None:
    done = forecast(tmp_path, "--format", "json", devices=("cuda:0", "cuda:1"))
    shown = json.loads(done.stdout)
    assert shown["notes"] == [SIMULATED, TOGETHER]
    layer, rows = 256 * 256 * 4 + 256 * 4, 64 * 256 * 4
    assert shown["now"]["gradients"] == 4 * layer
    # Both devices hold parameters, their state and gradients, whichever holds more.
    assert shown["now"]["peak"] >= 4 * 4 * layer + 4 * rows
    (frozen,) = shown["plans"]
    assert frozen["gradients"] == 3 * layer
    # The highest sum of both devices at one time, as of a script that is written that way.
    done = forecast(tmp_path, "--format", "json", devices=("cuda:0", "cuda:1"), line="layers[0].requires_grad_(False)")
    written = json.loads(done.stdout)["now"]
    assert frozen["peak"] == written["peak"] < shown["now"]["peak"]
