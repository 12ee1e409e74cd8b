"""demos/freeze_schedule.py under the probe: the naive freeze is marked as moved, and named; the right one is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.watched import Watched, watched

from gradtui.protocol.events import ParametersClassified

DEMO = Path(__file__).parents[4] / "demos" / "freeze_schedule.py"
STEPS = "epochs, frozen_epochs, steps = 6, 3, 1000\nwarm_up_steps = 100\n"
FEW = "epochs, frozen_epochs, steps = 4, 3, 5\nwarm_up_steps = 5\n"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Watched:
    source = DEMO.read_text(encoding="utf-8")
    assert STEPS in source
    monkeypatch.setattr(sys, "argv", [str(DEMO), *arguments])
    with watched() as seen:
        exec(compile(source.replace(STEPS, FEW), str(DEMO), "exec"), {"__name__": "__main__"})
    return seen


def test_the_naive_freeze_moves_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = run(monkeypatch, "--naive")
    paths = [info.path for info in seen.state.tree.parameters]
    moved = {
        path for event in seen.all(ParametersClassified) for path, letter in zip(paths, event.states) if letter == "M"
    }
    assert moved == {"fc2.weight", "fc2.bias"}
    (entry,) = [entry for entry in seen.state.log if entry.kind == "moved"]
    assert entry.text.startswith("fc2.weight, fc2.bias ")
    assert "unchanged" not in capsys.readouterr().out


def test_the_right_freeze_holds_still(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen = run(monkeypatch)
    assert not any("M" in event.states for event in seen.all(ParametersClassified))
    assert not any(entry.kind == "moved" for entry in seen.state.log)
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[2]) for line in lines] == [61, 61, 61, 73]
    assert ["unchanged to the bit" in line for line in lines] == [True, True, True, False]
