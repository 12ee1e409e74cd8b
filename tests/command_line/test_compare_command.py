"""`gradtui compare`, from two scripts to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_lines import ended
from helpers.fork_server import python

from gradtui.records.recording import Recording, replayed

pytestmark = pytest.mark.xdist_group("test_compare_command.py")  # `runs` is made once

SCRIPT = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
if "frozen" in sys.argv:
    model[0].requires_grad_(False)
optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1, momentum=0.9)
if "forgets" in sys.argv:
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""
SCHEDULE = """
version = 1
[[do]]
step = 10
command = "freeze"
path = "2"
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings and summaries: of the script, and of its variants."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "plan.toml").write_text(SCHEDULE)
    for name, options, arguments in (
        ("plain", (), ()),
        ("frozen", (), ("frozen",)),
        ("forgets", (), ("forgets",)),
        ("steered", ("--schedule", "plan.toml"), ()),
    ):
        files = ("--record", f"{name}.jsonl", "--summary", f"{name}.json")
        done = python("-m", "gradtui", "--plain", *files, *options, "train.py", *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def compare(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Run the subcommand in this process. Return its exit code, and what it has written to stdout and to stderr."""
    return ended(capsys, "compare", *words)


def compared(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, object]:
    code, out, _ = compare(capsys, *words, "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_a_frozen_layer(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict = compared(capsys, runs / "plain.jsonl", runs / "frozen.jsonl")  # type: ignore[type-arg]
    (difference,) = found["training"]["differences"]
    assert (difference["path"], difference["tensors"], difference["elements"]) == ("0", 2, 8 * 16 + 16)
    assert (difference["a"]["state"], difference["b"]["state"]) == ("T", "C")
    assert found["training"]["elements"]["difference"] == -(8 * 16 + 16)
    held = {row["name"]: row["difference"] for row in found["held"]}
    assert held["parameters"] == 0
    assert held["gradients"] == -4 * (8 * 16 + 16)
    # SGD keeps one momentum buffer for each parameter.
    assert held["optimizer_state"] == -4 * (8 * 16 + 16)
    norms = {row["name"]: row for row in found["gradient_norms"]}
    assert norms["0.weight"]["a"]["value"] > 0
    assert norms["0.weight"]["b"]["value"] is None
    assert found["differs"] == [{"what": "arguments", "a": "", "b": "frozen"}]


def test_norms_and_loss_are_those_of_the_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict = compared(capsys, runs / "plain.jsonl", runs / "plain.jsonl")  # type: ignore[type-arg]
    state = replayed(Recording(runs / "plain.jsonl"))
    assert found["window"] == [11, 20]
    last = sorted(value for step, value in zip(state.loss.steps, state.loss.values) if step > 10)
    # The median is a value that was measured.
    assert found["loss"]["a"]["value"] == last[(len(last) - 1) // 2]
    assert [found["loss"]["difference"], found["training"]["differences"]] == [0, []]
    assert found["findings"]["new"] == found["findings"]["gone"] == []


def test_a_new_finding_comes_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (confirmed,) = [f for f in replayed(Recording(runs / "forgets.jsonl")).findings if f.rule.startswith("GT1")]
    words = runs / "plain.jsonl", runs / "forgets.jsonl", "--fail-if", "new-findings>0"
    code, out, error = compare(capsys, *words)
    assert code == 3
    assert f"  new: {confirmed.rule} {confirmed.level}" in out
    assert error == "gradtui: exceeded: new-findings>0\n"
    code, out, _ = compare(capsys, words[1], words[0], *words[2:])
    assert code == 0
    assert f"  gone: {confirmed.rule} {confirmed.level}" in out


def test_a_change_by_a_schedule(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict = compared(capsys, runs / "plain.jsonl", runs / "steered.jsonl")  # type: ignore[type-arg]
    (change,) = found["interventions"]["only_b"]
    assert (change["step"], change["command"]) == (10, {"command": "freeze", "path": "2"})
    (difference,) = found["training"]["differences"]
    assert difference["path"] == "2"
    last, first_without = difference["b"]["trained_to"]
    assert last <= 10 < first_without
    _, out, _ = compare(capsys, runs / "plain.jsonl", runs / "steered.jsonl")
    assert "  only in B: step 10: froze 2" in out


def test_a_summary_gives_what_it_has(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict = compared(capsys, runs / "plain.json", runs / "frozen.jsonl")  # type: ignore[type-arg]
    (difference,) = found["training"]["differences"]
    assert difference["path"] == "0"
    assert found["loss"]["a"]["value"] is None
    assert found["loss"]["b"]["value"] > 0
    of_recording: dict = compared(capsys, runs / "plain.jsonl", runs / "frozen.jsonl")  # type: ignore[type-arg]
    assert [found["peaks"], found["held"]] == [of_recording["peaks"], of_recording["held"]]


@pytest.mark.parametrize(
    "names", [("plain.jsonl", "forgets.jsonl"), ("steered.jsonl", "frozen.json"), ("plain.json",) * 2]
)
def test_text_fits_eighty_columns(runs: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, str]) -> None:
    # As a user calls it, in the folder of the files.
    _, out, _ = compare(capsys, *(runs / name for name in names), "--fail-if", "peak>+5%")
    assert max(map(len, out.splitlines())) <= 80


def test_an_end_that_is_cut_off_is_said(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (runs / "plain.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(data[: len(data) * 2 // 3])
    code, out, error = compare(capsys, runs / "plain.jsonl", tmp_path / "cut.jsonl")
    assert code == 0
    assert "has not ended" in out
    assert error.startswith(f"gradtui: {tmp_path / 'cut.jsonl'}: the recording ends")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"text", b"{}", b'{"schema": 1}', b"[" * 100_000, b"\xff\xfe"],
    ids=["absent", "empty", "text", "object", "schema", "deep", "bytes"],
)
def test_a_file_that_is_none_of_both(
    content: bytes | None, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    code, out, error = compare(capsys, runs / "plain.jsonl", tmp_path / "x")
    assert (code, out) == (2, "")
    assert error.splitlines()[-1].startswith("gradtui: ")
    assert str(tmp_path / "x") in error.splitlines()[-1]


@pytest.mark.parametrize("expression", ["peak>5%", "speed>1", "rm -rf"])
def test_a_wrong_threshold_is_bad_usage(expression: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(capsys, runs / "plain.jsonl", runs / "plain.jsonl", "--fail-if", expression)
    assert (code, out) == (2, "")
