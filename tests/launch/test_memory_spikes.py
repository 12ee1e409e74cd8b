"""A user trains with steps that keep more for backward, and finds them everywhere: stderr, summary, recording, replay."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.fork_server import python

from gradtui.protocol.vocabulary import Phase
from gradtui.records.recording import Recording, replayed
from gradtui.run.state.series import Series

pytestmark = pytest.mark.xdist_group("test_memory_spikes.py")  # `ran` is made once

MIB = 1 << 20
MORE = 64 * MIB
OTHER = MIB // 4
"""What else the process has, such as buffers of its output, may differ by this much between steps."""
STEPS, SPIKES, PRODUCTS = 100, (48, 80), 8
"""Products of large matrices in each step. It takes much longer than its readings, also on a busy machine: otherwise these
would leave out steps."""

TRAIN = f"""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
large = torch.randn(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, {STEPS} + 1):
    for _ in range({PRODUCTS}):
        large @ large
    optimizer.zero_grad()
    loss = model(torch.randn(16, 32)).square().mean()
    if step in {SPIKES}:
        # tanh() keeps its result for backward: {MORE // MIB} MiB.
        loss = loss + loss.expand({MORE // 4}).tanh().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    directory = tmp_path_factory.mktemp("spikes")
    (directory / "train.py").write_text(TRAIN, encoding="utf-8")
    written = ("--summary", "summary.json", "--record", "run.jsonl")
    done = python("-m", "gradtui", "--plain", *written, "train.py", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory, done.stderr


def summary_of(directory: Path, name: str = "summary.json") -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / name).read_text(encoding="utf-8"))["memory"]
    return found


def test_each_has_line_and_closing_lines_count_them(ran: tuple[Path, str]) -> None:
    directory, said = ran
    lines = re.findall(
        r"^gradtui: step (\d+): memory spike in (\w+): ≥ ([\d.]+) MiB, ([\d.]+) MiB more", said, re.MULTILINE
    )
    assert [int(step) for step, *_ in lines] == [*SPIKES]
    for _, phase, whole, more in lines:
        assert phase == "forward"
        assert float(more) * MIB >= MORE - OTHER
        assert float(whole) >= float(more)
    (closing,) = re.findall(r"^gradtui: memory +peak .*$", said, re.MULTILINE)
    assert re.search(r" at step (48|80) in forward", closing)
    bound = "" if summary_of(directory)["spike_count_exact"] else "≥"
    assert f"; {bound}2 spikes" in closing


def test_the_summary_has_their_steps_and_bytes(ran: tuple[Path, str]) -> None:
    memory = summary_of(ran[0])
    spikes, peak = memory["spikes"], memory["peak"]
    assert isinstance(spikes, list)
    assert isinstance(peak, dict)
    assert memory["spike_count"] == len(SPIKES)
    assert [spike["step"] for spike in spikes] == [*SPIKES]
    for spike in spikes:
        assert spike["phase"] == "forward"
        assert spike["peak_bytes"] - spike["usual_bytes"] >= MORE - OTHER
        assert spike["steps"] == 1
    assert peak["step"] in SPIKES
    assert peak["bytes"] == max(spike["peak_bytes"] for spike in spikes)


def test_recording_has_totals_and_same_summary(ran: tuple[Path, str]) -> None:
    directory, _ = ran
    state = replayed(Recording(directory / "run.jsonl"))
    peaks = dict(state.step_memory.peak)
    usual = [peak for step, peak in peaks.items() if step not in SPIKES]
    for step in SPIKES:
        assert peaks[step] >= max(usual) + MORE // 2
    assert len(peaks) >= 0.9 * STEPS
    forward: Series = state.phases[Phase.FORWARD].totals
    assert [*SPIKES] == [step for step, total in forward if step in SPIKES and total >= max(usual) + MORE // 2]
    done = python("-m", "gradtui", "replay", "--plain", "--summary", "again.json", "run.jsonl", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert summary_of(directory, "again.json") == summary_of(directory)
    assert done.stderr.count("memory spike in") == len(SPIKES)
