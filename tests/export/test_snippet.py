"""The code a session becomes: pasted into a script it makes the same run, to the bit."""

# Modules, parameters and optimizers are more loosely typed in torch than a test uses them.
# mypy: disable-error-code="operator,union-attr,index,arg-type,assignment,attr-defined,misc,return-value"
from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from toggling import X, bits, freeze, small, step, unfreeze
from torch import nn
from watched import watched

from gradtui.export.snippet import snippet_text
from gradtui.protocol.commands import Intervention, SetTrainable, TrainOnly, Undo
from gradtui.protocol.events import CommandApplied, RunStarted
from gradtui.protocol.vocabulary import Changed
from gradtui.state.reducer import apply
from gradtui.state.run_state import RunState

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


def followed(code: str, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    names: dict[str, object] = {}
    exec(compile(code, "snippet.py", "exec"), names)
    names["follow_schedule"](model, *optimizers)  # type: ignore[operator]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("orphaned", [False, True])
def test_the_code_makes_the_same_run(make, orphaned: bool) -> None:
    def built() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = small()
        parameters = list(model.parameters())
        if orphaned:
            model[0].requires_grad_(False)
            first = {"params": parameters[4:], "weight_decay": 0.0}
            return model, make([first, {"params": parameters[2:4]}])
        return model, make(parameters)

    model, optimizer = built()
    asked = {**ASKED, 2: [unfreeze("0")]} if orphaned else ASKED
    with watched(budget=0.01) as seen:
        for number in range(12):
            for make_command in asked.get(number, ()):
                seen.submit(make_command)
            step(model, optimizer, to_none=False)
    code = snippet_text(seen.state)
    assert ("'0.weight', 0, " in code) == orphaned
    again, optimizer = built()
    followed(code, again, optimizer)
    for _ in range(12):
        step(again, optimizer, to_none=False)
    assert bits(again) == bits(model)
    assert len(seen.all(CommandApplied)) == sum(map(len, asked.values()))


def test_several_models_go_by_their_names() -> None:
    def built():
        torch.manual_seed(0)
        made = nn.Linear(4, 4), nn.Linear(4, 2)
        return made, [torch.optim.Adam(model.parameters(), lr=0.05) for model in made]

    def train(models, optimizers, before=lambda number: None) -> None:
        for number in range(12):
            before(number)
            optimizer = optimizers[number % 2]
            optimizer.zero_grad()
            models[1](models[0](X)).square().mean().backward()
            optimizer.step()

    models, optimizers = built()
    with watched() as seen:
        for name, model in zip("gd", models):
            seen.probe.view.discovery.name_model(name, model)
        train(models, optimizers, lambda number: seen.submit(freeze("d.bias")) if number == 5 else None)
    code = snippet_text(seen.state)
    assert 'follow_schedule({"g": g, "d": d}, optimizer)' in code
    again, optimizers = built()
    followed(code, dict(zip("gd", again)), *optimizers)
    train(again, optimizers)
    assert [bits(model) for model in again] == [bits(model) for model in models]


def test_statistics_are_held_while_they_are_frozen_and_not_any_longer() -> None:
    state = RunState()
    frozen = Changed(False, ("1.weight", "1.bias"), ("1",))
    apply(state, RunStarted(0.0, 0, "train.py", (), 1, "cpu", "l", "2", None))
    apply(state, CommandApplied(0.0, 1, freeze("1")(1), "froze 1", (), (frozen,)))
    apply(state, CommandApplied(0.0, 3, unfreeze("1")(2), "unfroze 1", (), (Changed(True, *frozen_paths(frozen)),)))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    followed(snippet_text(state), model, optimizer)
    means = []
    for _ in range(4):
        model.train()
        step(model, optimizer)
        assert model[1].training
        means.append(model[1].running_mean.tolist())
    assert means[0] == means[1] == means[2] != means[3]
    assert means[0] != [0.0] * 3


def frozen_paths(changed: Changed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return changed.paths, changed.statistics


@dataclass(frozen=True)
class Dropping(Intervention):
    """A freeze that takes the optimizer's state with it."""

    state: str = "drop"


def test_state_that_a_freeze_took_is_forgotten() -> None:
    state = RunState()
    paths = ("0.weight", "0.bias")
    apply(state, CommandApplied(0.0, 2, Dropping(1), "froze 0", (), (Changed(False, paths),)))
    apply(state, CommandApplied(0.0, 4, unfreeze("0")(2), "unfroze 0", (), (Changed(True, paths),)))
    ends = []
    for by_hand in (False, True):
        model = small()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if not by_hand:
            followed(snippet_text(state), model, optimizer)
        for number in range(6):
            if by_hand and number in (2, 4):
                for parameter in model[0].parameters():
                    parameter.requires_grad_(number == 4)
                    parameter.grad = None
                    _ = optimizer.state.pop(parameter, None) if number == 2 else None
            step(model, optimizer, to_none=False)
        ends.append(bits(model))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("dropped", [False, True])
def test_dropped_state_that_came_back_is_said_not_to(dropped: bool) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with watched() as seen:
        for number in range(8):
            if number == 2:
                seen.submit(lambda id_: SetTrainable(id_, "0", False, "drop" if dropped else "keep"))
            if number == 5:
                seen.submit(Undo)
            step(model, optimizer)
    code = snippet_text(seen.state)
    assert code.count("what the freeze dropped is not given back by this code") == dropped
    followed(code, small())


def test_what_the_code_does_not_do_stands_in_it() -> None:
    state = RunState()
    apply(state, CommandApplied(0.0, 40, Undo(1), "set the\nlearning rate", ()))
    code = snippet_text(state)
    assert "    # step 40: set the learning rate: not done by this code\n" in code
    followed(code, small())


def test_a_script_with_the_code_pasted_in_ends_as_the_session(tmp_path: Path) -> None:
    training = """
import json, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
{call}
x = torch.linspace(-1, 1, 24).view(6, 4)
for _ in range(8):
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()
print(json.dumps([p.tolist() for p in model.parameters()]))
"""
    schedule = tmp_path / "s.toml"
    schedule.write_text('[[do]]\nstep = 2\ncommand = "freeze"\npath = "0"\n[[do]]\nstep = 5\ncommand = "undo"\n')
    script, summary = tmp_path / "train.py", tmp_path / "s.json"
    script.write_text(training.format(call=""))
    words = [sys.executable, "-m", "gradtui", "--schedule", str(schedule), "--summary", str(summary), str(script)]
    watched_run = subprocess.run(words, capture_output=True, text=True, check=True)
    done = json.loads(summary.read_text())["interventions"]
    assert [(entry["step"], entry["command"], entry["parameters"]) for entry in done] == [
        (2, "freeze", ["0.weight", "0.bias"]), (5, "undo", ["0.weight", "0.bias"]),
    ]  # fmt: skip
    state = RunState()
    for entry, trainable in zip(done, (False, True)):
        changed = Changed(trainable, tuple(entry["parameters"]))
        apply(state, CommandApplied(0.0, entry["step"], Undo(1), entry["text"], (), (changed,)))
    script.write_text(snippet_text(state) + training.format(call="follow_schedule(model, optimizer)"))
    pasted = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert pasted.stdout == watched_run.stdout
    script.write_text(training.format(call=""))
    alone = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert alone.stdout != pasted.stdout
