"""`gradtui.watch`: the explicit way."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest
import torch
from helpers.fork_server import python
from helpers.training import square_step
from helpers.watched import watched
from torch import nn

import gradtui
from gradtui.probe.samplers.cpu_memory import ResidentAllocator
from gradtui.probe.session import Viewer
from gradtui.run.state.run_state import RunState
from gradtui.watching.watched_training import WatchInRun


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        square_step(model, optimizer, torch.ones(4, 3))


def test_watch_sees_training_and_freezes() -> None:
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
    (found,) = summary["models"]
    assert (found["name"], found["type"], found["parameters"], found["trainable"]) == ("net", "Linear", 8, 6)
    assert summary["steps"] == summary["micro_steps"] == 8
    (intervention,) = summary["interventions"]
    assert (intervention["step"], intervention["parameters"]) == (3, ["bias"])
    assert (intervention["path"], intervention["trainable"]) == ("bias", False)


def test_watch_returns_to_finite_state() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False, return_at_nan=1) as watch:
        train(model, optimizer, 3)
        with torch.no_grad():
            model.bias.fill_(math.nan)
        train(model, optimizer, 3)
        watch.summary()
        (back,) = watch.state.kept.returns
    assert back.made.why.endswith(", return 1 of 1")
    assert bool(model.bias.isfinite().all())


def test_a_summary_asked_for_in_between_is_complete() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False) as watch:
        for steps in range(1, 40):
            train(model, optimizer, 1)
            summary = watch.summary()
            assert summary["steps"] == summary["micro_steps"] == steps
            assert summary["optimizers"][0]["steps"] == steps
            assert summary["gradient_norm"]["measured_steps"] > 0
            known = [row["gradient_norm"] for row in summary["parameters"]]
            assert math.isclose(math.hypot(*known), summary["gradient_norm"]["last"], rel_tol=1e-5)


def test_without_progress_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False) as watch:
        watch.freeze("bias")
        watch.freeze("no such thing")
        deadline = time.monotonic() + 20
        while not {"applied", "rejected", "verified"} <= {entry.kind for entry in watch.state.log}:
            train(model, optimizer, 1)
            assert time.monotonic() < deadline
    assert capfd.readouterr().err == ""


def test_the_summary_names_where_totals_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.samplers.readings.cpu_allocator", ResidentAllocator)
    with gradtui.watch(nn.Linear(2, 2), progress=False) as watch:
        assert watch.summary()["ledger"] == ResidentAllocator.name


def test_a_refusal_names_what_was_refused() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gradtui.watch(model, optimizer, progress=False) as watch:
        train(model, optimizer, 2)
        watch.unfreeze("bias")
        train(model, optimizer, 1)
    assert [entry.kind for entry in watch.state.log].count("rejected") == 1


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
    told = []
    for step in range(6):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
        if step == 2:
            watch.freeze("bias")
        told.append(watch.summary()["steps"])
        assert watch.state.step == step + 1
summary = watch.summary()
print(summary["schema"], model.bias.requires_grad, told, [found["name"] for found in summary["models"]])
print([(done["step"], done["path"]) for done in summary["interventions"]])
"""


@pytest.mark.slow
def test_self_watching_script_runs_either_way(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(USES_WATCH, encoding="utf-8")
    for words in ((), ("-m", "gradtui", "--plain", "--summary", "s.json")):
        done = python(*words, "own.py", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "1 False [1, 2, 3, 4, 5, 6] ['net']\n[(3, 'bias')]\n"), done.stderr
    (intervention,) = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["interventions"]
    assert (intervention["path"], intervention["trainable"], intervention["parameters"]) == ("bias", False, ["bias"])


def test_failing_viewer_under_command_knows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(3, 2)
    with watched() as seen:
        watch = WatchInRun(seen.probe, Viewer(lambda at: at(RunState(step=7)), lambda: 2))
        assert (watch.state.step, watch.summary()["cost"]["dropped_events"]) == (7, 2)
        for fails in (lambda _: 1 / 0, lambda _: None):
            unsure = WatchInRun(seen.probe, Viewer(fails, lambda: 0))
            assert (unsure.state.step, unsure.summary()["steps"]) == (0, 0)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert watch.state.step == 0
        model(torch.ones(1, 3))
