"""A recording of a run gives the summary of that run, field by field, and its findings."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import fork_server
from helpers.examples import nightly
from helpers.replays import assert_it_gives

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.records.recording import Recording, replayed
from gradtui.run.diagnostics import FindingTracker

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("data")


def environment(directory: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(directory)}


def gradtui(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradtui", *words]
    return fork_server.run(command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, timeout=110)


DEMOS = sorted(path.name for path in (ROOT / "demos").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("demo", DEMOS[nightly(1, 0) :: nightly(3, 1)])
def test_the_summary_of_a_demo(demo: str, tmp_path: Path) -> None:
    written = ("--record", "run.jsonl", "--summary", "live.json", "--steps", "6")
    gradtui("--plain", *written, str(ROOT / "demos" / demo), cwd=tmp_path)
    assert_it_gives(tmp_path / "run.jsonl", tmp_path / "live.json")


@pytest.mark.slow
def test_command_writes_summary_and_says_run(tmp_path: Path) -> None:
    written = ("--record", "run.jsonl", "--summary", "live.json", "--steps", "3")
    live = gradtui("--plain", *written, str(ROOT / "demos" / "accumulation.py"), cwd=tmp_path)
    again = gradtui("replay", "--plain", "--summary", "again.json", "run.jsonl", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((tmp_path / "live.json").read_text())
    said = again.stderr.splitlines()
    assert len(said) > 5
    assert set(said) <= set(live.stderr.splitlines())


KILLED = """
import os, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
began = time.monotonic()
step = 0
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step += 1
    time.sleep(0.005)
    print(step, flush=True)
"""


@pytest.mark.slow
def test_sigkill_loses_a_second_at_most(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED)
    command = [sys.executable, "-m", "gradtui", "--plain", "--record", "run.zst", "train.py"]
    with fork_server.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        last = 0
        # 600 steps take three seconds at least.
        while last < 600:
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        last = int(rest[-1]) if rest else last
    recording = Recording(tmp_path / "run.zst")
    state = replayed(recording)
    # A step takes 5 ms at least, so 200 of them a second at least.
    assert state.step >= last - 200
    assert ["the run was killed" in each for each in recording.troubles] == [True]


def test_a_recording_of_version_1_is_read() -> None:
    recording = Recording(DATA / "version-1.jsonl")
    state = replayed(recording)
    assert recording.troubles == ()
    assert recording.header["gradtui"] == "0.1.0"
    assert (state.step, state.micro_steps, len(state.tree.parameters)) == (4, 4 * 4, 4)
    assert state.ended.exit_code == 0
    assert re.fullmatch("[TFCUO-]+", state.tree.states)
    assert state.gradient_norm.last == pytest.approx(state.norm_summary.last)


def test_old_recording_has_curves_that_newer_events_bring() -> None:
    """Its norms and memory came with other events, for the sampled steps only."""
    recording = Recording(DATA / "version-1.jsonl")
    events = list(recording.events())
    assert not [event for event in events if isinstance(event, (ev.StepsMeasured, ev.StepMemoryMeasured))]
    state = replayed(Recording(DATA / "version-1.jsonl"))
    norms = [event for event in events if isinstance(event, ev.GradientsMeasured)]
    assert [*state.loss] == [(event.step, event.loss) for event in norms if event.loss is not None]
    assert [*state.gradient_norm] == [(event.step, event.total) for event in norms if event.total is not None]
    assert (state.main_optimizer, list(state.of_optimizers)) == (-1, [-1])
    memory = [event for event in events if isinstance(event, ev.MemoryMeasured)]
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        of_phase = [event for event in memory if event.phase is phase]
        assert of_phase
        by_step = {event.step: event.held.total for event in of_phase if event.held.total is not None}
        assert [*state.phases[phase].totals] == [*by_step.items()]
        assert state.phases[phase].peak == max(event.peak for event in of_phase if event.peak is not None)


def test_rules_run_only_at_end_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(FindingTracker, "run", lambda _self, state: ends.append(state.step))
    lines = [
        line for line in (DATA / "version-1.jsonl").read_bytes().splitlines(keepends=True) if b"RulesRun" not in line
    ]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines))
    replayed(Recording(path))
    assert ends == [4]
    path.write_bytes(b"".join(lines[:-1]))
    replayed(Recording(path))
    assert ends == [4]


@pytest.mark.slow
def test_unrecordable_file_is_refused_before_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    for target, reason in (("train.py", "is no recording"), ("none/x.jsonl", "no directory")):
        done = gradtui("--plain", "--record", target, "train.py", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "train.py").read_text() == "print('ran')\n"
