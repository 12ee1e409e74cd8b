"""`gradtui --schedule`, from the command line to the weights, and the demo of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from helpers.examples import only_nightly
from helpers.fork_server import ROOT, python

DEMO = ROOT / "demos" / "freeze_schedule.py"

SCRIPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.linspace(-1, 1, 24).view(6, 4)
if "--toggles" in sys.argv:
    import gradtui
    watch = gradtui.watch(model, optimizer)
for number in range(20):
    if "--toggles" in sys.argv and number in (4, 11):
        (watch.freeze if number == 4 else watch.unfreeze)("0")
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()
print([p.tolist() for p in model.parameters()])
"""


def gradtui_plain(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "gradtui", "--plain", *words, cwd=home, XDG_STATE_HOME=str(home / "state"))


def test_acts_are_written_and_repeat_the_run(script: Path, tmp_path: Path) -> None:
    session = gradtui_plain(tmp_path, str(script), "--toggles")
    line = re.search(
        rf"gradtui: repeat    2 changes written down; .* gradtui --schedule (\S+) {script} --toggles; as code: (\S+)",
        session.stderr,
    )
    assert line is not None, session.stderr
    schedule, code = map(Path, line.groups())
    assert schedule.parent == tmp_path / "state" / "gradtui"
    again = gradtui_plain(tmp_path, "--schedule", str(schedule), str(script))
    assert (again.returncode, again.stdout) == (0, session.stdout)
    assert "step 4: froze 0: 2 tensors, 30 parameters" in again.stderr
    assert "written down" not in again.stderr
    alone = gradtui_plain(tmp_path, str(script))
    assert alone.stdout != session.stdout
    script.write_text(SCRIPT.replace("x = ", f"{code.read_text()}\nx = "))
    pasted = python(str(script), cwd=tmp_path)
    assert pasted.stdout == session.stdout


def test_a_mistake_is_told_before_anything_runs(script: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "s.toml"
    schedule.write_text('[[do]]\nstep = 4\ncommand = "frezze"\npath = "0"\n')
    run = gradtui_plain(tmp_path, "--schedule", str(schedule), str(script))
    assert (run.returncode, run.stdout) == (2, "")
    (line,) = run.stderr.splitlines()
    assert "'frezze'" in line
    assert "freeze?" in line


def test_unknown_name_ends_run_before_step(script: Path, tmp_path: Path) -> None:
    schedule = tmp_path / "s.toml"
    schedule.write_text('[[do]]\nstep = 4\ncommand = "freeze"\npath = "0.wieght"\n')
    run = gradtui_plain(tmp_path, "--schedule", str(schedule), str(script))
    assert (run.returncode, run.stdout) == (2, "")
    assert "entry 1 (step 4): " in run.stderr
    assert "Traceback" not in run.stderr


def test_last_steps_count_though_they_were_only_noted(tmp_path: Path) -> None:
    # More steps than are looked at one by one at the beginning.
    (tmp_path / "long.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(2000):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n",
        encoding="utf-8",
    )
    schedule = tmp_path / "s.toml"
    schedule.write_text('[[do]]\nstep = 9999\ncommand = "freeze"\npath = "weight"\n')
    run = gradtui_plain(tmp_path, "--schedule", str(schedule), str(tmp_path / "long.py"))
    assert run.returncode == 0
    assert "1 of 1 entries never reached: the run ended at step 2,000" in run.stderr
    assert "step 9,999" in run.stderr


@pytest.mark.slow
def test_demo_and_schedule_do_what_they_say(tmp_path: Path) -> None:
    plain = python(str(DEMO), cwd=tmp_path).stdout.splitlines()
    assert [int(line.split()[2]) for line in plain] == [61, 61, 61, 73, 73, 73]
    assert ["unchanged to the bit" in line for line in plain] == [True, True, True, False, False, False]
    replayed = gradtui_plain(tmp_path, "--schedule", str(DEMO.with_suffix(".toml")), str(DEMO), "--train-all")
    assert replayed.stdout.splitlines() == plain


@pytest.mark.slow
@only_nightly("trains for 6,000 steps")
def test_a_naive_freeze_of_demo_is_found(tmp_path: Path) -> None:
    naive = gradtui_plain(tmp_path, str(DEMO), "--naive")
    assert [int(line.split()[2]) for line in naive.stdout.splitlines()] == [61, 61, 61, 73, 73, 73]
    assert "unchanged" not in naive.stdout
    found = re.search(r"step ([\d,]+): fc2.weight, fc2.bias moved while frozen by the script", naive.stderr)
    assert found is not None
    assert 100 < int(found[1].replace(",", "")) <= 3100  # the steps that the demo freezes it for


PROMPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.ModuleDict({"prompt": torch.nn.Linear(4, 6), "encoder": torch.nn.Linear(6, 2)})
model["encoder"].requires_grad_(False)
optimizer = torch.optim.Adam(model["prompt"].parameters(), lr=0.01)
x, file = torch.linspace(-1, 1, 24).view(6, 4), sys.argv[1]
if "--resume" in sys.argv:
    saved = torch.load(file)
    model["prompt"].load_state_dict(saved["prompt"])
    optimizer.load_state_dict(saved["optimizer"])
for number in range(8):
    optimizer.zero_grad()
    model["encoder"](model["prompt"](x).tanh()).square().mean().backward()
    optimizer.step()
torch.save({"prompt": model["prompt"].state_dict(), "optimizer": optimizer.state_dict()}, file)
print(len(optimizer.param_groups[0]["params"]), len(optimizer.state))
"""


def test_checkpoint_resumes_with_or_without_schedule(tmp_path: Path) -> None:
    script = tmp_path / "prompt.py"
    script.write_text(PROMPT)
    schedule = tmp_path / "s.toml"
    schedule.write_text('[[do]]\nstep = 3\ncommand = "unfreeze"\npath = "encoder"\n')
    kept = str(tmp_path / "kept.pt")
    first = gradtui_plain(tmp_path, "--schedule", str(schedule), str(script), kept)
    assert first.stdout == "4 4\n"
    assert "encoder.weight, encoder.bias only if" in first.stderr
    alone = gradtui_plain(tmp_path, str(script), kept, "--resume")
    assert alone.returncode == 1
    assert "failed before it trained anything" in alone.stderr
    assert "a state of 4" in alone.stderr
    again = gradtui_plain(tmp_path, "--schedule", str(schedule), str(script), kept, "--resume")
    assert (again.returncode, again.stdout) == (0, "4 4\n")
    schedule.write_text(schedule.read_text() + '[[do]]\nstep = 6\ncommand = "undo"\n')
    assert gradtui_plain(tmp_path, "--schedule", str(schedule), str(script), kept).stdout == "2 2\n"
    plain = python(str(script), kept, "--resume", cwd=tmp_path)
    assert plain.stdout == "2 2\n"


def test_schedule_without_torch_is_unreached_and_said(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[do]]\nstep = 4\ncommand = "freeze"\npath = "0"\n')
    (tmp_path / "hello.py").write_text("print('hello')\n")
    run = gradtui_plain(tmp_path, "--schedule", "s.toml", "hello.py")
    assert (run.returncode, run.stdout) == (0, "hello\n")
    assert "1 of 1 entries never reached" in run.stderr
