"""`gradtui try`: a script runs until its changes were tried, and the report says what each of them costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_lines import refused
from helpers.fork_server import python

from gradtui.protocol.tries import ChangeTried, TriedSide
from gradtui.records.export.try_report import try_document, try_lines

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(800, 4)
model = nn.Sequential()
model.body, model.head = nn.Linear(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for shown, target in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True):
    optimizer.zero_grad()
    (model(shown) - target).square().mean().backward()
    optimizer.step()
print("the whole epoch")
"""


def test_a_script_runs_until_its_changes_were_tried(script: Path) -> None:
    options = ("--plans", "head", "--change", "freeze body, head", "--steps", "15", "--after", "5", "--format", "json")
    done = python("-m", "gradtui", "try", *options, script.name, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    assert "the whole epoch" not in done.stderr
    found = json.loads(done.stdout)
    without, head, _ = found["sides"]
    assert (found["steps"], len(head["losses"]), head["change"]) == (15, 15, "train-only :head")
    assert found["sides"][2]["ended"].startswith("refused")
    # Both begin with the same weights on the same batch. Then the side that trains more learns faster.
    assert head["losses"][0] == without["losses"][0]
    assert head["loss_difference"]["mean"] == pytest.approx(head["loss"] - without["loss"])
    assert head["loss_difference"]["mean"] > 0


def test_what_is_not_there_is_named(script: Path) -> None:
    done = python("-m", "gradtui", "try", "--plans", "lora", "--steps", "10", script.name, cwd=script.parent)
    assert done.returncode == 2
    assert ":lora: " in done.stderr


@pytest.mark.parametrize("options", [(), ("--change", "undo"), ("--change", "freeze x", "--steps", "3")])
def test_options_that_try_nothing_are_refused(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "try", *options, "train.py")


def side(change: str, loss: float, seconds: float, peak: int, ended: str = "") -> TriedSide:
    noise = [0.001 * (at % 3) for at in range(20)]
    return TriedSide(change, tuple(loss + each for each in noise), (seconds,) * 20, peak, ended=ended)


def test_the_front_has_what_no_other_side_beats() -> None:
    sides = (
        side("", 1.0, 0.02, 4 << 20),
        side("cheap", 1.1, 0.01, 2 << 20),
        side("worse than cheap", 1.2, 0.01, 3 << 20),
        side("broken", 0.5, 0.001, 1 << 20, "the loss of step 3 is not finite"),
    )
    tried = ChangeTried(1.0, 90, 7, sides, ("a note",))
    assert [each["on_front"] for each in try_document(tried)["sides"]] == [True, True, False, False]
    lines = try_lines(tried)
    assert lines[2].split() == ["●", "without", "a", "change", "1.00", "20.0", "ms", "–"]
    assert lines[3].split()[:3] == ["●", "cheap", "+0.100"]
    assert "not finite" in lines[5]
    assert lines[-1] == "a note"


def test_table_has_column_of_batches_held_aside() -> None:
    sides = (
        replace(side("", 1.0, 0.02, 4 << 20), aside=(0.5, 0.75, 0.625)),
        replace(side("freeze a", 1.1, 0.01, 2 << 20), aside=(0.75, 1.0, 0.875)),
        side("freeze b", 1.1, 0.01, 2 << 20, "failed: MemoryError, in step, step 21"),
    )
    tried = ChangeTried(1.0, 90, 7, sides)
    _, head, without, freeze, failed, _ = try_lines(tried)
    assert head.split() == ["loss", "held", "aside", "step", "peak"]
    assert "0.625" in without
    assert "+0.250 ± 0 " in freeze[head.index("held") :]
    assert "MemoryError" in failed
    found = try_document(tried)["sides"]
    assert [each["held_aside_loss"] for each in found] == [pytest.approx(0.625), pytest.approx(0.875), None]
    assert found[1]["held_aside_difference"]["pairs"] == 3
    assert found[2]["held_aside_difference"] is None


def test_iteration_with_two_optimizers_is_one_step(script: Path) -> None:
    of_two = SCRIPT.replace(
        "optimizer = torch", "other = torch.optim.SGD(model.head.parameters(), 0.01)\noptimizer = torch"
    )
    of_two = of_two.replace("    optimizer.step()", "    optimizer.step()\n    other.step()")
    script.write_text(of_two, encoding="utf-8")
    options = ("--change", "freeze body", "--steps", "12", "--after", "6", "--format", "json")
    done = python("-m", "gradtui", "try", *options, script.name, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    assert "the whole epoch" not in done.stderr
    assert [len(each["losses"]) for each in json.loads(done.stdout)["sides"]] == [12, 12]
