"""`gradtui forecast` from end to end: its figures against scripts that are written as each choice says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import fork_server
from helpers.command_lines import refused
from helpers.fork_server import ROOT, python

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(4, 16))
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(3))
        self.head = nn.Linear(16, 3)
        self.checkpointed = 0

    def forward(self, x):
        x = torch.cat([self.prompt.expand(len(x), -1, -1), x], 1)
        for index, layer in enumerate(self.encoder):
            x = checkpoint(layer, x, use_reentrant=False) if index < self.checkpointed else layer(x)
        return self.head(x.mean(1))

model = Model()
# HERE
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-3)
for step in range(6):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(5, 7, 16)), torch.randint(3, (5,)))
    loss.backward()
    optimizer.step()
    print("step", step)
"""
CHOICES = {
    "freeze encoder": ("--freeze", "encoder", "model.encoder.requires_grad_(False)"),
    "train-only prompt, head": (
        "--train-only", "prompt+head",
        "model.requires_grad_(False); model.head.requires_grad_(); model.prompt.requires_grad_()",
    ),
    "freeze encoder.0, *.bias": (
        "--freeze", "encoder.0+*.bias",
        "[each.requires_grad_(False) for name, each in model.named_parameters() if '.0.' in name or name.endswith('.bias')]",
    ),
    "checkpoint encoder.[01]": ("--checkpoint", "encoder.[01]", "model.checkpointed = 2"),
}  # fmt: skip
OUTSIDE = "activations are taken to grow with the batch"
EXACT = ("gradients", "optimizer_state", "activations")


def forecast(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Forecast from the third step, without the time of a step."""
    return python("-m", "gradtui", "forecast", "--steps", "3", *words, cwd=cwd)


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON, with which stdout is filled: the script's own output is on stderr."""
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("step")] == ["step 0", "step 1"]
    return json.loads(done.stdout)


def test_each_choice_costs_what_its_script_costs(script: Path) -> None:
    options = [word for option, selection, _ in CHOICES.values() for word in (option, selection)]
    shown = document(forecast(*options, "--format", "json", script.name, cwd=script.parent))
    assert (shown["schema"], len(shown["plans"])) == (1, len(CHOICES))
    for plan in shown["plans"]:
        _, _, line = CHOICES[plan["name"]]
        script.write_text(SCRIPT.replace("# HERE", line), encoding="utf-8")
        written = document(forecast("--freeze", "head.bias", "--format", "json", script.name, cwd=script.parent))["now"]
        assert {name: plan[name] for name in EXACT} == {name: written[name] for name in EXACT}, plan["name"]
        assert (plan["exact"], plan["why_not_exact"]) == (True, [])
        # Matrices of 16 columns take little time beside the rest.
        assert plan["time"] in (["slower"] if plan["name"].startswith("checkpoint") else ["faster", "same"])
    frozen, _, only, checkpointed = shown["plans"]
    assert frozen["commands"] == [{"command": "freeze", "path": "encoder", "state": "drop"}]
    assert only["commands"] == [{"command": "train_only", "selection": "prompt, head"}]
    assert [each["path"] for each in checkpointed["commands"]] == ["encoder.0", "encoder.1"]
    assert checkpointed["peak"] < shown["now"]["peak"]
    # The head keeps its inputs, and the gradient comes through the encoder to the prompt.
    assert only["gradients"] == (4 * 16 + 16 * 3 + 3) * 4


def test_choices_without_number_of_steps_have_seconds(script: Path) -> None:
    script.write_text(SCRIPT.replace("range(6)", "range(1_000)"), encoding="utf-8")
    words = ("--train-only", "head", "--checkpoint", "encoder.*", "--format", "json", script.name)
    done = python("-m", "gradtui", "forecast", *words, cwd=script.parent)
    assert 20 < done.stderr.count("\nstep ") < 100
    head, checkpointed = json.loads(done.stdout)["plans"]
    for plan in (head, checkpointed):
        low, high = (plan["seconds"]["seconds"] + sign * plan["seconds"]["margin"] for sign in (-1, 1))
        assert 0 < low < high
    # One encoder after the other runs again, without a matrix that is large.
    assert head["time"] == "faster"
    assert checkpointed["time"] in ("slower", "same")


def test_the_text_and_a_selection_that_names_nothing(script: Path) -> None:
    done = forecast(
        "--freeze", "encoder", "--unfreeze", "decoder", "--checkpoint", "body.*", script.name, cwd=script.parent
    )
    assert done.returncode == 2
    # Other models may still come: the script goes on to its end.
    assert done.stdout.splitlines() == [f"step {step}" for step in range(6)]
    lines = done.stderr.splitlines()
    (unknown,) = [line for line in lines if line.startswith("gradtui: --unfreeze decoder: ")]
    assert "no module or parameter 'decoder'" in unknown
    assert unknown.endswith(", in 6 steps of the script")
    ending = "there is no module 'body.*', and none matches it, in 6 steps of the script"
    assert f"gradtui: --checkpoint body.*: {ending}" in lines
    assert any(line.startswith("gradtui: freeze encoder") for line in lines)
    assert any(line.startswith("gradtui:   activations ") and " → " in line for line in lines)


def test_cheapest_fitting_checkpoints_and_too_little_memory(script: Path) -> None:
    large = SCRIPT.replace("torch.randn(5, 7, 16)", "torch.randn(100, 50, 16)").replace("(3, (5,))", "(3, (100,))")
    script.write_text(large, encoding="utf-8")
    shown = document(
        forecast("--checkpoint", "encoder.*", "--fit", "1TB", "--format", "json", script.name, cwd=script.parent)
    )
    everything, now = shown["plans"][0], shown["now"]
    assert (len(shown["plans"]), now["fits"], everything["fits"]) == (1, True, True)
    room = (now["peak"] + everything["peak"]) // 2
    shown = document(forecast("--fit", str(room), "--format", "json", script.name, cwd=script.parent))
    (found,) = shown["plans"]
    assert (shown["now"]["fits"], found["fits"], found["time"]) == (False, True, "slower")
    assert found["peak"] <= room < shown["now"]["peak"]
    paths = [each["path"] for each in found["commands"]]
    assert found["name"] == f"checkpoint {', '.join(paths)}"
    assert shown["largest_batch"]["now"] == 100
    assert 0 < shown["largest_batch"]["largest"] < 100
    # Fewer than all: that is the cheapest.
    assert 0 < len(paths) < 3
    done = forecast("--fit", "1KiB", "--freeze", "encoder.0", script.name, cwd=script.parent)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == "gradtui: nothing fits into 1.0 KiB"
    assert any(line.endswith(", does not fit") for line in done.stderr.splitlines())


def test_other_batch_size_costs_what_its_script_costs(script: Path) -> None:
    large = SCRIPT.replace("torch.randn(5, 7, 16)", "torch.randn(6, 50, 16)").replace("(3, (5,))", "(3, (6,))")
    script.write_text(large, encoding="utf-8")
    shown = document(
        forecast("--batch-scale", "2", "--batch-scale", "0.3", "--format", "json", script.name, cwd=script.parent)
    )
    doubled, odd = shown["plans"]
    script.write_text(large.replace("(6, 50, 16)", "(12, 50, 16)").replace("(6,)", "(12,)"), encoding="utf-8")
    written = document(forecast("--batch-scale", "1", "--format", "json", script.name, cwd=script.parent))["now"]
    for name in ("gradients", "optimizer_state"):
        assert doubled[name] == written[name]
    # What the loss keeps grows with the batch, but for the scalar at its end.
    assert doubled["activations"] == pytest.approx(written["activations"], abs=8)
    assert (doubled["exact"], doubled["why_not_exact"]) == (False, [OUTSIDE])
    assert (doubled["time"], odd["activations"], odd["time"]) == ("slower", None, "unknown")
    assert odd["why_not_exact"] == ["6 samples times 0.3 is no whole number"]


SEQUENCE_FIRST = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2, enable_nested_tensor=False))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(50, 6, 16)).square().mean().backward()
    optimizer.step()
    print("step", step)
"""


def test_size_of_batch_that_is_not_first_dimension(script: Path) -> None:
    script.write_text(SEQUENCE_FIRST, encoding="utf-8")
    words = ("--batch-scale", "2", "--format", "json", script.name)
    given = document(forecast("--batch-size", "6", "--fit", "1TB", *words, cwd=script.parent))
    wrong = document(forecast("--batch-size", "7", *words, cwd=script.parent))
    script.write_text(SEQUENCE_FIRST.replace("(50, 6, 16)", "(50, 12, 16)"), encoding="utf-8")
    written = document(forecast("--batch-scale", "1", "--format", "json", script.name, cwd=script.parent))["now"]
    (doubled,) = given["plans"]
    for name in ("gradients", "optimizer_state"):
        assert doubled[name] == written[name]
    # The square of the loss keeps its argument, outside of the models.
    assert doubled["activations"] == pytest.approx(written["activations"], abs=8)
    assert (given["largest_batch"]["now"], doubled["why_not_exact"]) == (6, [OUTSIDE])
    assert wrong["plans"][0]["why_not_exact"] == ["no input of the models has 7 as its first or second dimension"]


def test_a_compiled_model_is_not_checkpointed(script: Path) -> None:
    compiled = SCRIPT.replace("# HERE", "model.compile(backend='eager')")
    script.write_text(compiled, encoding="utf-8")
    words = ("--freeze", "head", "--checkpoint", "encoder.*", "--fit", "1KiB", "--format", "json", script.name)
    done = forecast(*words, cwd=script.parent)
    assert done.returncode == 4
    shown = json.loads(done.stdout)
    frozen, checkpointed = shown["plans"]
    setting = "torch._functorch.config.activation_memory_budget"
    assert (frozen["name"], frozen["exact"], frozen["activations"]) == ("freeze head", False, None)
    # A compiled step is not recorded, and the gradients follow from the shapes.
    assert shown["now"]["gradients"] - frozen["gradients"] == (16 * 3 + 3) * 4
    assert "torch.compile" in frozen["why_not_exact"][0]
    assert (checkpointed["name"], checkpointed["commands"]) == ("checkpoint encoder.*", [])
    assert (checkpointed["exact"], checkpointed["activations"]) == (False, None)
    (why,) = checkpointed["why_not_exact"]
    assert setting in why
    # For --fit, without a choice that would checkpoint.
    assert [setting in line for line in done.stderr.splitlines()].count(True) == 1


def test_plus_in_expression_is_part_of_it(script: Path) -> None:
    words = ("--freeze", r"re:^encoder\.[0-9]+\. + head", "--freeze", "encoder+head", "--train-only", "re:t+ + prompt")
    by_expression, by_paths, only = document(forecast(*words, "--format", "json", script.name, cwd=script.parent))[
        "plans"
    ]
    assert {name: by_expression[name] for name in EXACT} == {name: by_paths[name] for name in EXACT}
    assert [each["path"] for each in by_expression["commands"]] == [r"re:^encoder\.[0-9]+\.", "head"]
    # An expression extends to the end of a selection, so it comes last.
    assert only["commands"] == [{"command": "train_only", "selection": "prompt, re:t+"}]


def test_stdout_has_the_json_alone(script: Path) -> None:
    more = 'import atexit, os, sys; atexit.register(print, "bye"); os.system("echo child; echo error >&2")\n'
    script.write_text(more + SCRIPT.replace("range(6)", "range(2)"), encoding="utf-8")
    done = forecast("--freeze", "head", "--format", "json", script.name, cwd=script.parent)
    assert json.loads(done.stdout)["plans"][0]["name"] == "freeze head"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("gradtui: ")]
    assert sorted(lines) == ["bye", "child", "error", "step 0", "step 1"]


def test_the_json_without_stdout_or_stderr(script: Path) -> None:
    words = [sys.executable, *f"-m gradtui forecast --steps 2 --freeze head --format json {script.name}".split()]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options: dict[str, Any] = {"cwd": script.parent, "env": environ, "text": True, "timeout": 100}
    for redirect, read in ((">&-", "stderr"), ("2>&-", "stdout")):
        command = ["bash", "-c", f'"$@" {redirect}', "bash", *words]
        done = subprocess.run(command, capture_output=True, **options)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        (line,) = [line for line in getattr(done, read).splitlines() if line.startswith("{")]
        assert json.loads(line)["plans"][0]["name"] == "freeze head"
    reader, writer = os.pipe()
    os.close(reader)  # as `| true`
    done = fork_server.run(words, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, **options)
    os.close(writer)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_script_that_ends_before_recorded_step_or_fails(script: Path) -> None:
    script.write_text(SCRIPT.replace("range(6)", "range(1)"), encoding="utf-8")
    done = forecast("--freeze", "head", script.name, cwd=script.parent)
    assert done.returncode == 0
    assert "after 1 step, and step 3 " in done.stderr
    assert "gradtui: forecast after 1 step\n" in done.stderr
    script.write_text(SCRIPT.replace('print("step", step)', "raise SystemExit(7)"), encoding="utf-8")
    for words in (("--freeze", "head"), ("--freeze", "tail"), ("--fit", "1KiB")):
        assert forecast(*words, script.name, cwd=script.parent).returncode == 7


def test_a_script_that_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('no training')\n", encoding="utf-8")
    done = forecast("--freeze", ":head", "--format", "json", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["plans"] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no choice to forecast"),
        (("--freeze", "re:("), "--freeze 're:('"),
        (("--freeze", " "), "--freeze ' ': it is empty"),
        (("--freeze", "head + "), "--freeze 'head + '"),
        (("--freeze", "head++encoder"), "a comma or a +"),
        (("--train-only", "head + re:("), "--train-only 'head + re:('"),
        (("--fit", "9" * 401), "is not a size"),
        (("--fit", "much"), "'much' is not a size"),
        (("--batch-scale", "-1"), "'-1' is not a factor"),
        (("--batch-size", "1"), "'1' is not a batch size"),
        (("--fit", "0"), "'0' is no memory at all"),
    ],
)
def test_wrong_options_are_refused(
    words: tuple[str, ...], said: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, "forecast", *words, script)
