"""`gradtui.watch`: the explicit way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import gradtui


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()


def test_it_sees_what_is_trained_and_freezes_what_is_asked() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, name="net", progress=False) as watch:
        train(model, optimizer, 3)
        watch.freeze("bias")
        train(model, optimizer, 1)
        held = model.bias.detach().clone()
        train(model, optimizer, 4)
    summary = watch.summary()
    assert torch.equal(model.bias, held)
    assert summary["models"] == [{"name": "net", "type": "Linear", "parameters": 8, "trainable": 6}]
    assert summary["steps"] == summary["micro_steps"] == 8
    assert [(entry["step"], entry["parameters"]) for entry in summary["interventions"]] == [(3, ["bias"])]


def test_a_refusal_names_what_was_refused() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False) as watch:
        train(model, optimizer, 2)
        watch.unfreeze("bias")
        train(model, optimizer, 1)
    assert [entry.text for entry in watch.state.log if entry.kind == "rejected"] == [
        "cannot unfreeze bias: bias is already trainable"
    ]


def test_closing_leaves_torch_as_it_was() -> None:
    before = nn.Module.__call__
    watch = gradtui.watch(nn.Linear(2, 2), progress=False)
    assert nn.Module.__call__ is not before
    watch.close()
    watch.close()
    assert nn.Module.__call__ is before


def test_only_one_watch_at_a_time() -> None:
    with gradtui.watch(nn.Linear(2, 2), progress=False), pytest.raises(RuntimeError, match="another gradtui"):
        gradtui.watch(nn.Linear(2, 2))


USES_WATCH = """
import torch, gradtui
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with gradtui.watch(model, optimizer, name="net", progress=False) as watch:
    for step in range(6):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
        if step == 2:
            watch.freeze("bias")
print(watch.summary()["schema"], model.bias.requires_grad)
"""


@pytest.mark.parametrize("words", [(), ("-m", "gradtui", "--plain")], ids=["python", "gradtui"])
def test_a_script_that_watches_itself_runs_either_way(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "own.py").write_text(USES_WATCH, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, "own.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1 False\n"), done.stderr
