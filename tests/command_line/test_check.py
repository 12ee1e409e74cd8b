"""`gradtui check` from end to end: what it writes, where, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from helpers.fork_server import python

SCRIPT = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(100):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()  # HERE
    if "fixed" in sys.argv:
        optimizer.zero_grad()
    if step == 24 and "fail" in sys.argv:
        raise ValueError("a bad batch")
    if step == 24 and "leave" in sys.argv:
        sys.exit(7)
print(step, "é", *sys.argv[1:])
"""
STEP_LINE = 1 + SCRIPT.split("\n").index("    optimizer.step()  # HERE")


def gradtui(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "gradtui", *words, cwd=cwd)


def test_a_finding_gives_its_exit_code(script: Path) -> None:
    done = gradtui("check", "--select", "GT203,GT303", "--steps", "40", script.name, cwd=script.parent)
    assert (done.returncode, done.stdout) == (3, "")
    first, chance, last = done.stderr.splitlines()
    assert first.startswith("gradtui: error GT203: ")
    assert first.endswith(f"[{script}:{STEP_LINE}]")
    assert chance.endswith(": GT303")
    assert "checked 40 steps with 2 rules: 1 error," in last


def test_nothing_is_wrong(script: Path) -> None:
    done = gradtui("check", "--fail-on", "note", "--steps", "1000", script.name, "fixed", cwd=script.parent)
    assert (done.returncode, done.stdout) == (0, "99 é fixed\n")
    assert "checked 100 steps with " in done.stderr
    assert "0 errors, 0 warnings, 0 notes\n" in done.stderr


def test_comment_and_project_file_silence_rule(script: Path) -> None:
    script.write_text(SCRIPT.replace("# HERE", "# gradtui: ignore[GT203]"), encoding="utf-8")
    words = ("check", "--select", "GT203", "--steps", "20", script.name)
    silenced = gradtui(*words, cwd=script.parent)
    assert silenced.returncode == 0
    assert "with 1 rule: 0 errors" in silenced.stderr
    script.write_text(SCRIPT, encoding="utf-8")
    (script.parent / "pyproject.toml").write_text('[tool.gradtui]\nignore = ["GT2"]\n', encoding="utf-8")
    ignored = gradtui("--plain", "--steps", "20", script.name, cwd=script.parent)
    assert ignored.returncode == 0
    assert "GT203" not in ignored.stderr


@pytest.mark.parametrize(
    ("first", "word", "code"), [("check", "fail", 1), ("check", "leave", 7), ("--plain", "fail", 1)]
)
def test_failing_script_keeps_its_exit_code_and_traceback(script: Path, first: str, word: str, code: int) -> None:
    done = gradtui(first, "--select", "GT203", script.name, word, cwd=script.parent)
    assert done.returncode == code
    *before, last = done.stderr.partition("ValueError: a bad batch\n") if word == "fail" else ("", done.stderr)
    assert re.search("gradtui: (finding +)?error GT203: ", last)
    if word == "fail":
        assert before[0].count("Traceback") == 1
        assert "gradtui: 25 steps" not in before[0]


def test_findings_go_to_a_file(script: Path) -> None:
    words = ("--select=GT203", "--steps=20", "--summary", "s.json", "--format", "json", "--output", "o")
    done = gradtui("check", *words, script.name, cwd=script.parent)
    assert done.returncode == 3
    assert done.stderr.count("GT203") == 1  # of the last line
    summary = json.loads((script.parent / "s.json").read_text(encoding="utf-8"))
    assert (summary["exit_code"], summary["steps"]) == (0, 20)
    (finding,) = summary["findings"]
    assert (finding["rule"], finding["file"], finding["line"]) == ("GT203", str(script), STEP_LINE)
    assert json.loads((script.parent / "o").read_text(encoding="utf-8")) == summary["findings"]


def test_unwritable_file_gives_findings_on_stderr(script: Path) -> None:
    (script.parent / "into").mkdir()
    script.write_text("import os\nos.rmdir('into')\n" + SCRIPT, encoding="utf-8")
    words = ("--select=GT203", "--steps=20", "--format=github", "--output", "into/o")
    done = gradtui("check", *words, script.name, cwd=script.parent)
    assert done.returncode == 3
    assert str(script.parent / "into" / "o") in done.stderr
    assert f"\n::error file=train.py,line={STEP_LINE + 2}," in done.stderr


def test_a_script_that_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "check").write_text("print('x', end='')\n", encoding="utf-8")
    done = gradtui("check", "check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "x")
    assert "without training" in done.stderr
    assert "checked 0 steps" in done.stderr
    assert gradtui("./check", cwd=tmp_path).stdout == "x"
    missing = gradtui("check", "none.py", cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1


def test_finding_next_to_backward_with_nothing_to_do(tmp_path: Path) -> None:
    frozen = SCRIPT.replace("optimizer = ", "model.requires_grad_(False)\noptimizer = ")
    (tmp_path / "train.py").write_text(frozen, encoding="utf-8")
    for first in ("check", "--plain"):
        done = gradtui(first, "train.py", cwd=tmp_path)
        assert done.returncode == 1
        after = done.stderr.partition("does not require grad and does not have a grad_fn\n")[2]
        assert re.search("error GT112: backward failed ", after)
        assert f"[{tmp_path / 'train.py'}:{STEP_LINE}]" in after  # one line more, and the line before that of the step
