"""The command from end to end without a screen: what a script prints, how it ends, and what the summary says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from helpers.fork_server import ROOT, python

TRAIN = """
import hashlib, random, sys
import torch
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
model[0].weight.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest(), torch.rand(1).item(), random.random() * 0, *sys.argv[1:])
print("to stderr", file=sys.stderr)
"""


def run(*arguments: str, cwd: Path, plain_python: bool = False, fresh: bool = True) -> subprocess.CompletedProcess[str]:
    words = () if plain_python else ("-m", "gradtui")
    return python(*words, *arguments, cwd=cwd, fresh=fresh, COLUMNS="80")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train me.py"
    path.write_text(TRAIN, encoding="utf-8")
    return path


def test_stdout_is_unchanged_and_summary_tells_all(script: Path) -> None:
    plain = run(script.name, "--epochs", "3", cwd=script.parent, plain_python=True, fresh=False)
    done = run("--plain", "--summary", "summary.json", script.name, "--epochs", "3", cwd=script.parent, fresh=False)
    summary = json.loads((script.parent / "summary.json").read_text(encoding="utf-8"))
    assert plain.returncode == 0
    assert done.stdout == plain.stdout
    assert "to stderr" in done.stderr
    assert "12 steps, 12 micro-steps" in done.stderr
    assert done.returncode == summary["exit_code"] == 0
    assert (summary["schema"], summary["script"], summary["device"]) == (1, "train me.py", "cpu")
    assert (summary["steps"], summary["micro_steps"], summary["skipped_steps"]) == (12, 12, 0)
    elements = 6 * 16 + 16 + 16 * 2 + 2
    (model,) = summary["models"]
    assert (model["name"], model["type"], model["current"]) == ("model", "Sequential", True)
    assert (model["parameters"], model["trainable"]) == (elements, elements - 6 * 16)
    assert model["gradient_bytes"] == 4 * (elements - 6 * 16)
    assert model["run_under"] == {"grad": {"trainable": elements - 6 * 16, "frozen": 6 * 16}}
    (optimizer,) = summary["optimizers"]
    assert [optimizer[key] for key in ("type", "parameters", "groups", "steps")] == ["AdamW", 3, 1, 12]
    states = {row["path"]: row["state"] for row in summary["parameters"]}
    assert states == {"0.weight": "F", "0.bias": "T", "3.weight": "T", "3.bias": "T"} or states["0.weight"] == "C"
    forward = summary["phases"]["forward"]
    assert forward["count"] == 12
    assert forward["bytes_end"]["parameters"] == 4 * elements
    held = forward["bytes_end"]
    known = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "other")
    assert sum(held[category] for category in known) == held["total"]
    assert summary["phases"]["optimizer"]["bytes_end"]["gradients"] == 4 * (elements - 6 * 16)
    assert summary["gradient_norm"]["measured_steps"] > 0


@pytest.mark.parametrize("words", [["--plain"], []], ids=["plain", "no terminal"])
def test_pause_at_nan_is_refused_without_keyboard(script: Path, words: list[str]) -> None:
    result = run("--pause-at-nan", *words, script.name, cwd=script.parent)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("gradtui: --pause-at-nan needs the screen")


def test_the_first_nan_is_told_without_a_screen(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    spoilt = TRAIN.replace("loss.backward()", "(loss * (float('nan') if step == 6 else 1)).backward()")
    path.write_text(spoilt, encoding="utf-8")
    result = run("--plain", "--summary", "out.json", path.name, cwd=tmp_path, fresh=False)
    summary = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    said = summary["bad_step"]["in_words"]
    # On a slow machine step 7 is not sampled, and the loss cannot be told from what follows the last module.
    where = ("in the loss, outside of any module", "in 3 or after it")
    told = [f"first NaN: forward of step 7, {place} (last finite step 6)" for place in where]
    first = said.partition("; the optimizer step 7 wrote it to the weights of ")[0]
    assert first in told
    assert summary["bad_step"]["step"] == 7
    assert f"gradtui: step 7: {first}" in result.stderr
    assert f"{said}\n" in result.stderr, "in the closing lines"


def test_it_is_plain_without_terminal_and_stops(script: Path) -> None:
    done = run("--summary", "s.json", "--steps", "5", script.name, cwd=script.parent, fresh=False)
    summary = json.loads((script.parent / "s.json").read_text(encoding="utf-8"))
    assert (done.returncode, summary["exit_code"], summary["steps"]) == (0, 0, 5)
    assert done.stdout.count("step ") == 4
    assert "5 steps" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "code"),
    [("import sys; sys.exit(7)", 7), ("raise ValueError('so it is')", 1), ("raise SystemExit('no')", 1), ("", 0)],
)
def test_endings_are_those_of_plain_python(tmp_path: Path, body: str, code: int) -> None:
    (tmp_path / "end.py").write_text(f"print('begun')\n{body}\n", encoding="utf-8")
    plain = run("end.py", cwd=tmp_path, plain_python=True)
    watched = run("--plain", "end.py", cwd=tmp_path)
    assert watched.returncode == plain.returncode == code
    assert watched.stdout == plain.stdout
    own = [line for line in watched.stderr.splitlines(keepends=True) if line.startswith("gradtui: ")]
    assert "".join(line for line in watched.stderr.splitlines(keepends=True) if line not in own) == plain.stderr


def test_error_inside_forward_shows_no_frame_of_ours(tmp_path: Path) -> None:
    body = "import torch\nmodel = torch.nn.Linear(2, 2)\nmodel(torch.ones(3, 3))\n"
    (tmp_path / "wrong.py").write_text(body, encoding="utf-8")
    watched = run("--plain", "wrong.py", cwd=tmp_path, fresh=False)
    assert watched.returncode == 1
    assert "mat1 and mat2 shapes cannot be multiplied" in watched.stderr
    assert str(ROOT / "gradtui") not in watched.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("missing.py",), 2, "missing.py"),
        (("-m", "no_such_module"), 1, "no_such_module"),
    ],
)
def test_bad_input_gets_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.startswith("gradtui: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_syntax_error_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n", encoding="utf-8")
    plain = run("broken.py", cwd=tmp_path, plain_python=True)
    watched = run("broken.py", cwd=tmp_path)
    assert (watched.returncode, watched.stderr) == (plain.returncode, plain.stderr)
