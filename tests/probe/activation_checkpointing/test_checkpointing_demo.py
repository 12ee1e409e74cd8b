"""`demos/checkpointing.py`: what it prints, and the same choice made by commands while it trains."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from helpers.fork_server import python
from helpers.watched import Watched, watched

from gradtui.protocol.commands import SetCheckpointing
from gradtui.protocol.events import ReceiptTaken

DEMO = Path(__file__).parents[3] / "demos" / "checkpointing.py"
SEGMENTS = 6


@pytest.fixture(scope="module")
def printed() -> str:
    """What the demo prints."""
    run = python(str(DEMO), cwd=DEMO.parent)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.xdist_group("checkpointing demo")
def test_the_forecast_tells_beforehand_what_it_prints(printed: str) -> None:
    rows = re.findall(r" +([\d.]+) MiB +[\d.]+ ms", printed)
    plain, *measured = map(float, rows)
    options = ["--checkpoint", "segments.?", "--checkpoint", "segments.?.?", "--format", "json"]
    shown = python("-m", "gradtui", "forecast", *options, str(DEMO), "9", cwd=DEMO.parent).stdout
    found = json.loads(shown)
    changes = [(plan["peak"] - found["now"]["peak"]) / 2**20 for plan in found["plans"]]
    assert changes == pytest.approx([after - plain for after in measured], abs=0.02 * plain)


@pytest.mark.xdist_group("checkpointing demo")
def test_it_prints_lower_peaks_and_identical_weights(printed: str) -> None:
    rows = re.findall(r"^(\S.*?) +([\d.]+) MiB +[\d.]+ ms +([0-9a-f]{16})$", printed, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["nothing", f"every {SEGMENTS} blocks (√n)", "every block"]
    peaks = [float(peak) for _, peak, _ in rows]
    assert peaks[0] > 2 * peaks[1] > 2 * peaks[2]
    assert len({weights for _, _, weights in rows}) == 1
    assert "The final weights are identical." in printed


def live(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[str, Watched]:
    """Train for a few steps, with so many segments checkpointed from the beginning; the weights' digest."""
    monkeypatch.setattr(sys, "argv", [str(DEMO), "7"])
    with watched(budget=0.05) as seen:
        for index in range(count):
            seen.submit(lambda number, index=index: SetCheckpointing(number, f"segments.{index}", True))  # type: ignore[misc]
        with pytest.raises(SystemExit):
            runpy.run_path(str(DEMO), run_name="__main__")
    return capsys.readouterr().out.rpartition("weights ")[2], seen


def test_the_same_choice_made_live(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = live(capsys, monkeypatch, 0)
    other, seen = live(capsys, monkeypatch, SEGMENTS)
    assert other == plain
    receipts = seen.all(ReceiptTaken)
    assert len(receipts) == SEGMENTS
    # Of each segment all that is left is what it was given: 256 KiB, 512 rows of 128 numbers.
    ((before, after),) = re.findall(r"activations ([\d.]+) → ([\d.]+) MiB", receipts[-1].text)
    assert float(after) < float(before) / 10
