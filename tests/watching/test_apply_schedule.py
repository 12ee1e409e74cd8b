"""`gradtui.apply_schedule`: a schedule file in the user's own script makes the run that the session was, to the bit."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import torch
from helpers.fork_server import python
from helpers.training import square_step
from helpers.watched import watched
from torch import nn

import gradtui
from gradtui.protocol.commands import TrainOnly, Undo
from gradtui.records.export.schedule_file import schedule_text

sys.path.insert(0, str(Path(__file__).parents[1] / "probe"))

from helpers.toggling import X, bits, freeze, small, step, unfreeze

OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, initial_accumulator_value=0.5),
}
ASKED = {
    0: [freeze("2.bias")],
    2: [freeze("0"), unfreeze("2.bias")],
    4: [lambda id_: TrainOnly(id_, ":head")],
    6: [Undo],
    8: [unfreeze(":all")],
}


def built(make, orphaned: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = small()
    parameters = list(model.parameters())
    if orphaned:
        model[0].requires_grad_(False)
        return model, make([{"params": parameters[4:], "weight_decay": 0.0}, {"params": parameters[2:4]}])
    return model, make(parameters)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("orphaned", [False, True])
def test_it_makes_the_run_that_the_session_was(make, orphaned: bool, tmp_path: Path) -> None:
    asked = {**ASKED, 2: [unfreeze("0")]} if orphaned else ASKED
    model, optimizer = built(make, orphaned)
    with watched(budget=0.01) as seen:
        for _ in seen.steps(12, asked):
            step(model, optimizer, to_none=False)
    file = tmp_path / "s.toml"
    file.write_text(schedule_text(seen.state, "train.py"), encoding="utf-8")
    again, optimizer = built(make, orphaned)
    with gradtui.apply_schedule(file, again, optimizer) as watch:
        for _ in range(12):
            step(again, optimizer, to_none=False)
    assert bits(again) == bits(model)
    alone, optimizer = built(make, orphaned)
    for _ in range(12):
        step(alone, optimizer, to_none=False)
    assert bits(alone) != bits(model)
    assert [entry["step"] for entry in watch.summary()["interventions"]] == [
        number for number, commands in asked.items() for _ in commands
    ]


def test_several_models_go_by_their_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = {"g": nn.Linear(4, 4), "d": nn.Linear(4, 2)}
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.05) for model in models.values()]
    file = tmp_path / "s.toml"
    file.write_text('[[do]]\nstep = 5\ncommand = "freeze"\npath = "d.bias"\n', encoding="utf-8")
    biases = []
    with gradtui.apply_schedule(file, models, *optimizers):
        for number in range(12):
            square_step(models["d"], optimizers[number % 2], models["g"](X))
            biases.append(models["d"].bias.tolist())
    # The second optimizer steps at every other step; it is frozen when five steps have been executed.
    assert biases[1] != biases[3] == biases[5] == biases[11]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[do]]\nstep = 2\ncommand = 'freze'\n", "entry 1 .*there is no command 'freze'; did you mean freeze"),
        ("[[do]]\nstep = 2\ncommand = 'freeze'\npath = 're:('\n", "entry 1 .*'re:\\(' is no regular expression"),
        ("step =", "it is not TOML"),
    ],
)
def test_invalid_schedule_is_refused_before_watching(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"s.toml: {words}"):
        gradtui.apply_schedule(file, small())
    with pytest.raises(ValueError, match=r"nothing\.toml: No such file"):
        gradtui.apply_schedule(tmp_path / "nothing.toml", small())
    gradtui.watch(small(), progress=False).close()


def test_schedule_does_not_join_watch_or_another_schedule(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[[do]]\nstep = 2\ncommand = 'freeze'\npath = '0'\n", encoding="utf-8")
    with gradtui.watch(small(), progress=False), pytest.raises(RuntimeError, match="watch is open"):
        gradtui.apply_schedule(file, small())


SCRIPT = """\
import sys, torch, gradtui
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if sys.argv[1:]:
    gradtui.apply_schedule(sys.argv[1], model, optimizer)
x = torch.linspace(-1, 1, 24).view(6, 4)
for _ in range(8):
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()
print([p.tolist() for p in model.parameters()])
"""


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")

    return functools.partial(python, cwd=tmp_path)


@pytest.mark.slow
def test_the_script_and_the_command_end_alike(run, tmp_path: Path) -> None:
    schedule = '[[do]]\nstep = 2\ncommand = "freeze"\npath = "0"\n[[do]]\nstep = 5\ncommand = "undo"\n'
    (tmp_path / "s.toml").write_text(schedule)
    (tmp_path / "later.toml").write_text(f'{schedule}[[do]]\nstep = 50\ncommand = "undo"\n')
    alone, by_itself = run("train.py"), run("train.py", "s.toml")
    assert (by_itself.returncode, by_itself.stderr) == (0, "")
    assert by_itself.stdout != alone.stdout
    for words in (("--schedule", "s.toml", "train.py"), ("train.py", "s.toml")):
        assert run("-m", "gradtui", "--plain", *words).stdout == by_itself.stdout
    # Nobody closes the watch: it closes with the process, and says what it has not done.
    late = run("train.py", "later.toml")
    assert late.stdout == by_itself.stdout
    never = "1 of 3 entries never reached: the run ended at step 8, the next one is for step 50"
    assert late.stderr == f"gradtui: schedule: {never}\n"


@pytest.mark.slow
def test_exiting_child_leaves_report_to_parent(run, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[do]]\nstep = 50\ncommand = "undo"\n')
    script = SCRIPT.replace("print(", "import os\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint(")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = run("train.py", "s.toml")
    assert done.returncode == 0
    assert done.stderr.count("1 of 1 entries never reached") == 1


@pytest.mark.slow
def test_name_that_no_model_has_ends_script(run, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[do]]\nstep = 2\ncommand = "freeze"\npath = "nope"\n')
    done = run("train.py", "s.toml")
    said = "entry 1 (step 2): there is no module or parameter 'nope'; the run was stopped before its first step"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradtui: schedule: {said}\n")
