"""A state in a file: it has everything, and loads in plain torch by the lines of the manual."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from helpers.keeping_runs import Run, clone, trained
from helpers.values import assert_equal
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, SparseAdam
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from gradtui.probe.commands.files import file_writer
from gradtui.probe.kept_states import CopyDetails, FileContents, IncompleteCopyError, RunCopy, write_safetensors
from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, KeepState, RenameState, SaveState
from gradtui.run.text import refusals

safetensors = pytest.importorskip("safetensors")
safe_open, load_file = safetensors.safe_open, pytest.importorskip("safetensors.torch").load_file

Make = Callable[[int], Command]
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "go-back.md"


def lines_of_the_manual(file: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "run.safetensors" in code
    return str(code).replace("run.safetensors", str(file))


def loaded(file: Path, **names: Any) -> dict[str, Any]:
    """Run the lines of the manual with these objects, and return what they have read."""
    exec(lines_of_the_manual(file), names)
    found: dict[str, Any] = names["state"]
    return found


@pytest.mark.parametrize(
    "kind",
    [
        lambda parameters: SGD(parameters, 0.1, momentum=0.9),
        lambda parameters: AdamW(parameters, 0.01, amsgrad=True),
        lambda parameters: AdamW(parameters, torch.tensor(0.01), fused=True),
    ],
)
def test_run_continues_from_file_by_manual_lines(kind: Callable[[Any], Optimizer], tmp_path: Path) -> None:
    file, kept_at = tmp_path / "run.safetensors", 4
    seen, values = trained(Run(kind), {kept_at: [lambda number: KeepState(number, "good", str(file))]})
    (answer,) = seen.answers()
    assert answer.startswith(f"saved step {kept_at} to {file}: ")
    assert not seen.all(ev.StateKept)
    other = Run(kind)
    for parameter in other.model.parameters():
        nn.init.zeros_(parameter)
    state = loaded(file, model=other.model, optimizer=other.optimizer, scheduler=other.scheduler)
    np.random.set_state(state["random"]["numpy"])
    other.model.average = state["others"]["model"]["average"]
    assert (state["step"], state["name"], state["left_out"]) == (kept_at, "good", [])
    assert state["frozen"] == {"model": ["frozen.weight", "frozen.bias"]}
    for expected in values[kept_at:]:
        other.step()
        assert_equal(other.values(), expected)


def test_tensors_have_the_names_of_the_script(tmp_path: Path) -> None:
    file = tmp_path / "x"
    trained(Run(lambda parameters: Adam(parameters)), {4: [lambda number: KeepState(number, file=str(file))]})
    names = set(load_file(file))
    expected = {"model/head.weight", "model/encoder.1.running_mean", "model/average", "optimizer/0/head.bias/exp_avg"}
    assert names > expected | {"random/torch"}


def test_kept_state_is_renamed_and_saved_unchanged(tmp_path: Path) -> None:
    first, later = tmp_path / "first", tmp_path / "later"
    commands: dict[int, list[Make]] = {
        4: [KeepState, lambda number: KeepState(number, file=str(first))],
        6: [lambda number: RenameState(number, 1, "before"), lambda number: SaveState(number, 1, str(later))],
    }
    seen, _ = trained(Run(), commands)
    assert seen.answers()[2:3] == ["state 1 of step 4 is named before"]
    assert seen.state.kept.states[1].kept.name == "before"
    assert_equal(load_file(later), load_file(first))


class Odd(nn.Module):
    """Shared and strange tensors."""

    def __init__(self) -> None:
        super().__init__()
        flat = torch.arange(12.0)
        self.one, self.other = nn.Parameter(flat[:6].view(2, 3)), nn.Parameter(flat[6:].view(3, 2).t())
        self.tied = self.one
        self.last = nn.Parameter(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last))
        self.register_buffer("number", torch.tensor(3))
        self.register_buffer("nothing", torch.empty(0, 4))
        self.register_buffer("short", torch.tensor([1.0, float("nan"), -0.0], dtype=torch.bfloat16))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("turns", torch.tensor([1j, 2 - 1j]))
        self.register_buffer("own", torch.ones(2), persistent=False)


def written(copy: RunCopy, file: Path) -> FileContents:
    contents = FileContents()
    copy.put_into(contents)
    with open(file, "wb") as stream:
        write_safetensors(stream, contents.tensors, {}, lambda _: None)
    return contents


def test_unusual_tensors_are_written_as_they_are(tmp_path: Path) -> None:
    model, file = Odd(), tmp_path / "odd"
    contents = written(RunCopy([model], [], []), file)
    found, places = load_file(file), contents.state["models"]["model"]
    read = {path: found[entry["$tensor"]] for path, entry in places.items()}
    expected = model.state_dict()
    assert read.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (read[name].dtype, read[name].shape) == (tensor.dtype, tensor.shape)
        assert read[name].contiguous().view(-1).tolist().__repr__() == tensor.contiguous().view(-1).tolist().__repr__()
    assert places["tied"] == places["one"]
    assert [*contents.state["others"]["model"]] == ["own"]


def test_several_models_and_optimizers_have_own_names(tmp_path: Path) -> None:
    first, second, lone = nn.Linear(2, 2), nn.Linear(2, 2), torch.zeros(3, requires_grad=True)
    optimizer = SGD([lone], 0.1)
    contents = written(RunCopy([first, second], [optimizer], [], CopyDetails(["net", "net"])), tmp_path / "x")
    assert {"net/weight", "net 1/weight", "parameter/4"} <= contents.tensors.keys()
    assert contents.state["optimizers"][0]["parameters"] == ["parameter/4"]


def test_unsupported_by_safetensors_is_refused_or_named() -> None:
    def contents(
        model: nn.Module, optimizers: tuple[Optimizer, ...] = (), stateful: tuple[Any, ...] = ()
    ) -> FileContents:
        found = FileContents()
        RunCopy([model], optimizers, stateful).put_into(found)
        return found

    wide, sparse = nn.Module(), nn.Module()
    wide.register_buffer("x", torch.zeros(2, dtype=torch.complex128))
    sparse.register_buffer("x", torch.eye(2).to_sparse())
    with pytest.raises(IncompleteCopyError, match="model/x is complex128, and safetensors has no such numbers"):
        contents(wide)
    with pytest.raises(IncompleteCopyError, match="model/x is sparse, and safetensors has no such tensors"):
        contents(sparse)
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = SparseAdam(table.parameters())
    table(torch.tensor([1])).sum().backward()
    assert contents(table, (optimizer,)).left_out == ["gradient/model/weight (sparse)"]
    scheduler = LambdaLR(SGD(nn.Linear(1, 1).parameters(), 0.1), Doubled())
    (left_out,) = contents(table, (), (scheduler, OneCycleLR(SGD(table.parameters(), 0.1), 1.0, 9))).left_out[-1:]
    assert "gradient" in left_out
    assert contents(nn.Linear(1, 1), (), (Holder(),)).left_out == ["Holder/0/function (function)"]


class Doubled:
    """A callable object, whose attributes a scheduler saves."""

    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, step: int) -> float:
        return self.factor * step


class Holder:
    """Something with a state that JSON cannot have as a whole."""

    def state_dict(self) -> dict[str, Any]:
        return {"count": 3, "function": clone, "by step": {1: (2, 3)}}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # Nothing half written stays.
    assert [each.name for each in tmp_path.iterdir()] in ([], ["there"])


def test_file_that_is_there_stays_without_word(folder: Path) -> None:
    there = folder / "there"
    there.write_bytes(b"before")
    seen, _ = trained(Run(), {4: [lambda number: KeepState(number, file=str(there))]}, steps=6)
    assert seen.answers() == [refusals.file_is_there(there)]
    assert there.read_bytes() == b"before"
    seen, _ = trained(Run(), {4: [lambda number: KeepState(number, file=str(there), replace=True)]}, steps=6)
    assert seen.answers()[0].startswith("saved step 4")
    assert load_file(there)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("no/such/x", "No such file or directory"),
        (".", "is not a file"),
        ("/dev/full", "/dev/full is not a file"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_bad_path_is_one_line(file: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for make in (lambda number: KeepState(number, file=file), lambda number: SaveState(number, 1, file)):
        (*_, reason) = trained(Run(), {3: [KeepState], 4: [make]}, steps=6)[0].answers()
        assert words in reason
        assert "\n" not in reason


def test_full_disk_is_one_line_anytime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make: Make = lambda number: KeepState(number, file=str(folder / "x"))  # noqa: E731

    def full(path: Path, fill: Callable[[BinaryIO], object], **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file_writer, "write_atomically", full)
        refused = refusals.not_written(folder / "x", "No space left on device")
        assert trained(Run(), {4: [make]}, steps=6)[0].answers() == [refused]
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    (reason,) = trained(Run(), {4: [make]}, steps=6)[0].answers()
    assert reason.endswith(f"and 10 B are free in {folder}")


def test_keeping_in_a_file_changes_nothing(tmp_path: Path) -> None:
    state = random.getstate()
    _, plain = trained(Run(), {})
    random.setstate(state)
    _, kept = trained(Run(), {4: [lambda number: KeepState(number, file=str(tmp_path / "x"))]})
    assert_equal(kept, plain)
