"""`gradtui export`, from a script to the files."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.exports import read_parquet, read_scalars
from helpers.fork_server import ROOT, python

from gradtui.command_line.cli import parse
from gradtui.protocol import events as ev
from gradtui.records.recording import Recording, replayed

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
model[0].bias.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    if step % 4 == 3:
        scheduler.step()
"""
SCHEDULE = """
version = 1
[[do]]
step = 6
command = "freeze"
path = "2"
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a real run, in which the last layer is frozen after six steps."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "plan.toml").write_text(SCHEDULE)
    words = ("--plain", "--record", "run.jsonl.zst", "--schedule", "plan.toml", "train.py")
    done = python("-m", "gradtui", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run.jsonl.zst"


def export(*words: str | Path) -> int:
    """Run the subcommand in this process, and return its exit code."""
    with pytest.raises(SystemExit) as end:
        parse(["export", *map(str, words)])
    code = end.value.code
    assert isinstance(code, int)
    return code


def test_every_format_has_what_the_run_has_measured(recording: Path, tmp_path: Path) -> None:
    targets = {"--csv": "csv", "--parquet": "run.parquet", "--tensorboard": "tb", "--trace": "trace.json"}
    words = [word for option, name in targets.items() for word in (option, tmp_path / name)]
    assert export(recording, *words) == 0
    state = replayed(Recording(recording))
    events = list(Recording(recording).events())
    measured = [event for event in events if isinstance(event, ev.GradientsMeasured)]
    assert len(measured) == state.norm_summary.measured_steps >= 10

    with open(tmp_path / "csv" / "steps.csv", newline="") as file:
        steps = list(csv.DictReader(file))
    assert [(int(row["step"]), float(row["gradient_norm"])) for row in steps] == [
        (event.step, event.total) for event in measured
    ]
    assert [(int(row["step"]), float(row["loss"])) for row in steps] == list(zip(state.loss.steps, state.loss.values))
    # A change may be read some steps later on a busy machine: what the steps before had is unknown.
    rates = {int(row["step"]): float(row["learning_rate"]) for row in steps if row["learning_rate"]}
    assert rates == {step: pytest.approx(0.1 * 0.5 ** ((step - 1) // 4)) for step in rates}
    assert len(rates) >= 4

    with open(tmp_path / "csv" / "times.csv", newline="") as file:
        times = list(csv.DictReader(file))
    for phase, record in state.phases.items():
        assert math.fsum(float(row[f"{phase}_s"] or 0) for row in times) == pytest.approx(record.seconds)
    assert sum(int(row["steps"]) for row in times) == 12

    norms = read_parquet(tmp_path / "run.parquet", "gradient_norms")
    each = list(zip(norms["step"].to_pylist(), norms["gradient_norm"].to_pylist()))
    for step, total in zip(state.gradient_norm.steps, state.gradient_norm.values):
        assert math.hypot(*(norm for at, norm in each if at == step)) == pytest.approx(total, rel=1e-5)
    changes = read_parquet(tmp_path / "run.parquet", "changes").to_pylist()
    assert [(row["step"], row["command"], row["status"]) for row in changes] == [(6, "freeze 2", "applied")]

    scalars = read_scalars(tmp_path / "tb")
    began = Recording(recording).header["began"]
    at = {event.step: event.at for event in measured}
    step, wall_time, _ = scalars["gradient_norm/2"][-1]
    assert (step, wall_time) == (6, began + at[6])
    assert [(step, value) for step, _, value in scalars["gradient_norm/total"]] == [
        (event.step, pytest.approx(event.total)) for event in measured
    ]

    entries = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert_slices_nest(entries)
    for phase, record in state.phases.items():
        drawn = [each for each in entries if each.get("cat") == "phase" and each["name"] == phase]
        assert math.fsum(each["args"]["seconds"] for each in drawn) == pytest.approx(record.seconds)
        # The first report is known to begin within some milliseconds only.
        assert math.fsum(each["dur"] for each in drawn) / 1e6 == pytest.approx(record.seconds, rel=0.5)
    assert [entry["args"]["step"] for entry in entries if entry.get("cat") == "applied"] == [6]


def assert_slices_nest(entries: list[dict[str, object]]) -> None:
    """Check that the slices of each track begin in order, and that each lies within those that are open, or after them."""
    for track in {entry["tid"] for entry in entries if entry["ph"] == "X"}:
        open_ends: list[int] = []
        last_start = 0
        found = [entry for entry in entries if entry["ph"] == "X" and entry["tid"] == track]
        assert found
        for entry in found:
            start, duration = entry["ts"], entry["dur"]
            assert isinstance(start, int)
            assert isinstance(duration, int)
            assert start >= last_start
            last_start = start
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or start + duration <= open_ends[-1]
            open_ends.append(start + duration)


@pytest.mark.parametrize(("option", "package", "extra"), [
    ("--parquet", "pyarrow", "gradtui[parquet]"),
    ("--tensorboard", "tensorboard.compat.proto.event_pb2", "gradtui[tensorboard]"),
])  # fmt: skip
def test_missing_package_is_one_line_with_command(
    option: str,
    package: str,
    extra: str,
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert export(recording, option, tmp_path / "out", "--csv", tmp_path / "csv") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"pip install '{extra}'")
    # The formats that could be written are not written either.
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_done_is_one_line(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("no recording")
    (tmp_path / "taken").mkdir()
    for words, message in [
        ((recording,), "no format to write; give --csv, --parquet, --tensorboard or --trace"),
        ((tmp_path / "text", "--csv", tmp_path / "out"), "is no recording"),
        ((tmp_path / "nothing", "--csv", tmp_path / "out"), "cannot read"),
        ((recording, "--trace", tmp_path / "taken"), "is a directory"),
        ((recording, "--trace", tmp_path / ("a" * 300)), "File name too long"),
        ((recording, "--csv", tmp_path / ("a" * 300)), "File name too long"),
        ((recording, "--csv", tmp_path / "text"), "is no directory"),
        ((recording, "--csv", tmp_path / "none" / "out"), "there is no directory"),
        ((recording, "--force", "--trace", recording), "is the recording itself; choose another name"),
        ((recording, "--trace", tmp_path / "text"), "is there; choose another name, or give --force"),
    ]:
        assert export(*words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert {path.name for path in tmp_path.iterdir()} == {"text", "taken"}


def test_cut_recording_is_exported_up_to_there(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import zstandard

    with open(recording, "rb") as file:
        whole = zstandard.ZstdDecompressor().stream_reader(file).read()
    (tmp_path / "cut.jsonl").write_bytes(whole[: whole.index(b"\n", len(whole) // 2) - 1])
    assert export(tmp_path / "cut.jsonl", "--csv", tmp_path / "out") == 0
    assert "middle of a line" in capsys.readouterr().err
    steps = (tmp_path / "out" / "steps.csv").read_text().splitlines()
    assert len(steps) > 2


def test_nothing_of_export_imports_torch(recording: Path, tmp_path: Path) -> None:
    words = ["export", str(recording), "--csv", "csv", "--parquet", "p", "--tensorboard", "tb", "--trace", "t"]
    code = (
        "import sys; from gradtui.command_line.cli import main\n"
        f"try: main({words!r})\n"
        "finally: print([name for name in ('torch', 'tensorflow', 'textual') if name in sys.modules])"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert len(list(tmp_path.iterdir())) == 4
