"""A batch in a file: its tensors as the script has them, the random states before it, and nothing that is gone."""

from __future__ import annotations

import gc
import itertools
import random
import stat
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.watched import ScriptedCommands, Watched, watched
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from gradtui.protocol.commands import PauseAtBadStep, Resume, SaveBatch, SetBreakpoint
from gradtui.protocol.events import CommandApplied, CommandRejected, PauseChanged
from gradtui.run.text import refusals

BAD = 150


@dataclass
class Sample:
    inputs: Tensor
    target: Tensor
    name: str = "a name"


class Numbers(Dataset[Any]):
    """Each sample has its index as input, and twice that as target, but for one."""

    def __init__(self, wrong: float = 1e6) -> None:
        self.wrong = wrong

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        target = self.wrong if index == BAD else 2.0 * index
        return torch.full((3,), float(index)), torch.tensor([target])


SHAPES: dict[str, tuple[Callable[[Tensor, Tensor], Any], Callable[[Any], tuple[Tensor, Tensor]], list[str]]] = {
    "tuple": (lambda inputs, target: (inputs, target), lambda batch: batch, ["0", "1"]),
    "nested": (
        lambda inputs, target: {"a": inputs, "b": [{"target": target}, "text"]},
        lambda batch: (batch["a"], batch["b"][0]["target"]),
        ["a", "b.0.target"],
    ),
    "dataclass": (Sample, lambda batch: (batch.inputs, batch.target), ["inputs", "target"]),
    "UserDict": (
        lambda inputs, target: UserDict({"inputs": inputs, "target": target}),
        lambda batch: (batch["inputs"], batch["target"]),
        ["inputs", "target"],
    ),
}


def trained(
    file: Path,
    *commands: Callable[[int], Any],
    shape: str = "tuple",
    wrong: float = 1e6,
    set_at: Callable[[int], Any] = lambda number: SetBreakpoint(number, "spike"),
    loaders: int = 1,
    draw: Callable[[], object] = lambda: None,
) -> tuple[Watched, list[Any]]:
    """Train on shuffled batches, and give these commands while the run is held. Return also the batches, as copies."""
    make, parts, _ = SHAPES[shape]
    every = commands or (lambda number: SaveBatch(number, str(file)),)
    acts = [*[lambda queue, each=each: queue.submit(each) for each in every], lambda queue: queue.submit(Resume)]
    batches: list[Any] = []
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    of_each = [
        DataLoader(Numbers(wrong), 4, shuffle=True, collate_fn=lambda samples: make(*default_collate(samples)))
        for _ in range(loaders)
    ]
    with watched(commands=ScriptedCommands(acts)) as seen:
        seen.submit(set_at)
        for every_batch in zip(*of_each):
            inputs, target = parts(every_batch[0])
            batches.append([[each.clone() for each in parts(batch)] for batch in every_batch])
            draw()
            optimizer.zero_grad()
            (model(inputs) - target).square().mean().backward()
            optimizer.step()
    return seen, batches


def place_of_bad(batches: list[Any]) -> int:
    return next(number for number, (first, *_) in enumerate(batches, 1) if float(BAD) in first[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_batch_of_a_spike(shape: str, tmp_path: Path) -> None:
    seen, batches = trained(tmp_path / "bad.pt", shape=shape)
    saved = torch.load(tmp_path / "bad.pt", weights_only=True)
    number = place_of_bad(batches)
    assert saved["step"] == number
    assert list(saved["batch"]) == SHAPES[shape][2]
    for name, expected in zip(saved["batch"], batches[number - 1][0]):
        assert torch.equal(saved["batch"][name], expected)
    assert torch.equal(saved["arguments"][0]["0"], batches[number - 1][0][0])
    (place,) = saved["places"]
    assert (place["number"], place["epoch"], place["count"]) == (number, 1, 50)
    assert place["samples"] == batches[number - 1][0][0][:, 0].int().tolist()
    assert (saved["gone"], saved["found"].split(":")[0]) == ([], "loss spike")
    assert stat.S_IMODE((tmp_path / "bad.pt").stat().st_mode) == 0o600
    # Before the optimizer applies it.
    assert [(event.step, event.held_step is not None) for event in seen.all(PauseChanged)] == [
        (number - 1, True), (number - 1, False),
    ]  # fmt: skip


def test_the_random_states_are_those_before_the_forward(tmp_path: Path) -> None:
    states: list[Any] = []

    def draw() -> None:
        torch.rand(3)
        random.random()
        np.random.rand()
        states.append((torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()))

    _, batches = trained(tmp_path / "bad.pt", draw=draw)
    saved = torch.load(tmp_path / "bad.pt", weights_only=True)
    number = place_of_bad(batches)
    of_torch, of_python, of_numpy = states[number - 1]
    assert saved["rng_at"] == f"as the forward of step {number} began"
    assert torch.equal(saved["rng"]["torch"], of_torch)
    assert saved["rng"]["python"] == of_python
    assert saved["rng"]["numpy"][1] == of_numpy
    before = np.random.get_state()
    np.random.set_state(saved["rng"]["numpy"])
    np.random.set_state(before)


def test_batch_of_nan_and_of_two_loaders(tmp_path: Path) -> None:
    _, batches = trained(tmp_path / "bad.pt", set_at=PauseAtBadStep, wrong=float("nan"), loaders=2)
    saved = torch.load(tmp_path / "bad.pt", weights_only=True)
    number = place_of_bad(batches)
    assert list(saved["batch"]) == ["0.0", "0.1", "1.0", "1.1"]
    assert torch.equal(saved["batch"]["1.0"], batches[number - 1][1][0])
    assert [place["number"] for place in saved["places"]] == [number, number]
    assert "NaN" in saved["found"]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "bad.pt"
    file.write_text("mine")
    seen, _ = trained(file, lambda number: SaveBatch(number, str(file)))
    (refused,) = seen.all(CommandRejected)
    assert refused.reason == refusals.file_is_there(file)
    assert file.read_text() == "mine"
    trained(file, lambda number: SaveBatch(number, str(file), replace=True))
    assert torch.load(file, weights_only=True)["batch"]
    seen, _ = trained(file, lambda number: SaveBatch(number, str(tmp_path / "no" / "bad.pt")))
    assert "No such file or directory" in seen.all(CommandRejected)[0].reason


def test_a_batch_too_large_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.commands.files.saved_batch._MAX_BYTES", 10)
    seen, _ = trained(tmp_path / "bad.pt")
    assert seen.all(CommandRejected)[0].reason == refusals.batch_too_large("64 B", "10 B")
    assert list(tmp_path.iterdir()) == []


def steps_of_loop(steps: int) -> Iterator[tuple[int, nn.Module]]:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        yield step, model
        optimizer.step()


def test_batch_that_script_has_released_is_gone(tmp_path: Path) -> None:
    """gradtui refers to it weakly, also while it is the batch of a NaN."""
    alive = []
    with watched(budget=100.0) as seen:
        for step, model in steps_of_loop(6):
            inputs = torch.full((2, 3), float("nan") if step == 3 else 1.0)
            model(inputs).sum().backward()
            if step == 3:
                alive.append(weakref.ref(inputs.untyped_storage()))
                del inputs
            if step == 4:
                gc.collect()
                assert alive[0]() is None
                seen.submit(lambda number: SaveBatch(number, str(tmp_path / "bad.pt")))
    (refused,) = seen.all(CommandRejected)
    assert refused.reason == refusals.batch_is_gone(3)


def test_the_present_batch_without_a_data_loader(tmp_path: Path) -> None:
    whole = torch.arange(30_000.0).view(10_000, 3)
    with watched() as seen:
        for step, model in steps_of_loop(4):
            if step == 3:
                seen.submit(lambda number: SaveBatch(number, str(tmp_path / "now.pt")))
            model(whole[step : step + 2]).sum().backward()
    (saved_by,) = seen.all(CommandApplied)
    saved = torch.load(tmp_path / "now.pt", weights_only=True)
    assert (saved["step"], saved["found"], saved["places"], saved["batch"]) == (3, "", [], {})
    assert torch.equal(saved["arguments"][0]["0"], whole[3:5])
    # Not the whole data set, of which the batch is a view.
    assert (tmp_path / "now.pt").stat().st_size < whole.nbytes
    assert "random states when this file was written" in saved_by.text


def test_step_that_cannot_be_held_pauses_after() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-9, max_iter=1)
    factors = itertools.chain([1.0] * 40, [1e4], itertools.repeat(1.0))
    with watched(commands=ScriptedCommands([lambda queue: queue.submit(Resume)])) as seen:
        seen.submit(lambda number: SetBreakpoint(number, "spike"))
        for _ in range(45):
            factor = next(factors)

            def closure(factor: float = factor) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = factor * (model(torch.ones(1, 1)) - 1).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)  # type: ignore[no-untyped-call]
    (paused,) = (event for event in seen.all(PauseChanged) if event.paused)
    assert (paused.step, paused.held_step) == (41, None)
    assert paused.reason.startswith("loss spike: ")
